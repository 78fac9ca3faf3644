// What an operator may do with a session of another user: read it, and with the role `decide` answer what waits there.

/** Why the caller may not write to a session of `user`, and why not decide in it; "" if the caller may. */
export function rights(about, user) {
  const roles = about.roles ?? [];
  if (!roles.includes("operator") || !user || user === about.user) return { write: "", decide: "" };
  const whose = `This session belongs to ${user}. As an operator you may read it`;
  return roles.includes("decide")
    ? { write: `${whose} and answer what waits for a person, but not write to it.`, decide: "" }
    : { write: `${whose}, but not write to it.`, decide: `${whose}, but not decide without the role decide.` };
}
