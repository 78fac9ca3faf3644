"""stub"""

from .script import Reply, text


def demo(request):
    return Reply([text("demo")])
