"""Words of every script, and queries as users type them, without a query syntax."""

import sqlite3

import pytest

from foldlog.processors.search.full_text import STAND_INS_MAX, FullText
from foldlog.processors.search.index import SearchIndex
from foldlog.processors.search.words import STOP_WORDS, TERMS_MAX, query_of, spelled

SCOPE = "user:ana"


@pytest.fixture
def index():
    with sqlite3.connect(":memory:") as connection:
        yield SearchIndex(connection)


def put(index, *texts):
    for number, text in enumerate(texts):
        index.upsert(f"d{number}", SCOPE, "note", "", text, number)


def found(index, query):
    return [hit.id for hit in index.search(query, [SCOPE])]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("getUserName", "getusername get user name"),
        ("get_user_name()", "getusername get user name"),
        ("HTTPServerError", "httpservererror http server error"),
        ("processors/search/index.py", "processors search index py"),
        ("東京都 tower", "東 京 都 tower"),
        ("והבית", "והבית הבית בית"),
        ("שָׁלוֹם", "שלום לום"),
        ("Café Ünïque", "cafe unique"),
        ("ﬁle １２３", "file 123"),
        ("हिन्दी", "हिन्दी"),
        ("가격은", "가 격 은"),
        ("... \x00 ?!", ""),
    ],
)
def test_a_text_is_split_into_normalized_words(text, words):
    assert spelled(text) == words


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("run the tests", [("run",), ("tests",)]),
        ("the", [("the",)]),
        ("src/app.py", [("src", "app", "py"), ("src",), ("app",), ("py",)]),
        ("東京都", [("東", "京"), ("京", "都")]),
        ("都", [("都",)]),
        ("בבית", [("בבית",), ("בית",)]),
    ],
)
def test_a_query_is_split_into_terms(text, terms):
    assert list(query_of(text).terms) == terms


def test_the_terms_of_a_query_are_bounded(index):
    put(index, "word7")
    page = " ".join(f"word{n}" for n in range(5000))
    assert len(query_of(page).terms) == TERMS_MAX
    assert found(index, page) == ["d0"]


@pytest.mark.parametrize(
    "query",
    [
        '"', '""', '"walrus', "walrus\"", "walrus*", "*", "wal*", "NEAR(walrus penguin, 2)",
        "-walrus", "body:walrus", "{body} : walrus", "^walrus", "walrus AND", "AND", "OR NOT",
        "(walrus", ")))",
        "walrus'); DROP TABLE search_documents; --", "' OR 1=1 --", "walrus\x00penguin", "%", "_",
        "walrus + penguin", "\ud800walrus", "walrus" + "\u0301" * 50, "🦭", "walrus 🦭", "", "  \n",
    ],
)
def test_no_character_of_a_query_is_syntax(index, query):
    put(index, "walrus", "penguin")
    expected = {"d0"} if "walrus" in query else set()
    assert expected <= set(found(index, query))
    assert found(index, "walrus") == ["d0"]


@pytest.mark.parametrize("operator", ["and", "or", "not", "near", "AND", "NOT"])
def test_operators_of_other_query_languages_are_words(index, operator):
    put(index, f"{operator} gate", "flip flop")
    assert found(index, operator) == ["d0"]


@pytest.mark.parametrize(
    ("text", "queries"),
    [
        ("東京都のお客様には翌日に配達できます。", ["東", "東京", "京都", "お客様", "翌日に配達"]),
        ("客户在十四天内取消可以全额退款", ["退", "退款", "全额退款", "十四天"]),
        ("서울에서 온 주문은 당일 발송됩니다", ["서울", "주문", "발송"]),
        ("คลังสินค้าในกรุงเทพปิดวันอาทิตย์", ["กรุงเทพ", "อาทิตย์"]),
        ("המחסן בחיפה סגור ביום שישי", ["מחסן", "חיפה", "ביום", "יום", "לחיפה"]),
        ("يُغلق المستودع في دبي", ["يغلق", "دبي", "يُغْلَق"]),
        ("Пароли лежат в хранилище", ["пароли", "ПАРОЛИ", "пароль"]),
        ("दिल्ली में तीन दिन", ["दिल्ली", "तीन"]),
        ("def getUserName(user_id): pass", ["getUserName", "get_user_name", "username", "user_id"]),
        ("the file src/pay/card_gateway.py", ["card_gateway.py", "pay/card_gateway", "gateway"]),
        ("הפונקציה getUserName נכשלת", ["getUserName", "פונקציה", "getusername נכשלת"]),
        ("Der Fußgänger überquert", ["fußganger", "uberquert"]),
    ],
)
def test_S3_3_texts_in_every_script_are_found(index, text, queries):
    put(index, text, "something else", "完全不同", "לגמרי אחר")
    for query in queries:
        assert found(index, query)[:1] == ["d0"], query


def test_one_character_finds_exactly_the_texts_that_contain_it(index):
    put(index, "東京", "大阪", "京都")
    assert set(found(index, "京")) == {"d0", "d2"}
    assert found(index, "阪") == ["d1"]


def test_stop_words_are_ignored_if_the_query_has_other_words(index):
    put(index, "the and of", "walrus")
    assert found(index, "the walrus") == ["d1"]
    assert found(index, "the") == ["d0"]
    assert all(word == word.lower() for word in STOP_WORDS)


def test_an_unknown_word_is_replaced_by_similar_words(index):
    put(index, "the database migration of last week took an hour, and no user was affected by it")
    (hit,) = index.search("migratoin", [SCOPE])
    assert 0 < hit.parts.full_text < 0.5
    assert hit.snippet.startswith("the database migration")
    (right,) = index.search("migration", [SCOPE])
    assert right.parts.full_text > hit.parts.full_text
    assert index.search("mitigate", [SCOPE]) == []


def test_documents_of_other_scopes_do_not_change_a_rank():
    def rank(more: bool):
        with sqlite3.connect(":memory:") as connection:
            index = SearchIndex(connection)
            put(index, "one walrus swims", "two penguins swim")
            if more:
                for number in range(9):
                    index.upsert(f"o{number}", "user:bob", "note", "", "one walrus misspelt", 1)
            return index.search("walruss walrus one", [SCOPE])

    assert rank(False) == rank(True)


def test_an_unknown_word_is_replaced_by_the_few_most_similar_words():
    with sqlite3.connect(":memory:") as connection:
        table = FullText(connection, "words")
        table.put(enumerate(["walrus1x", "walrus2", "walrus3", "walrus1", "wombat"], 1))
        found = table.ranks(query_of("walrus1y"), within={1, 2, 3, 4, 5})
        assert found.keys() == {1, 4, 2} and STAND_INS_MAX == 3
