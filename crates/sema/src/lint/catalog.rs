//! The warnings: codes (never reused for another meaning), p4c's names for `@noWarn`, titles and explanations.

/// A kind of warning.
#[derive(Debug)]
pub struct Lint {
    /// As `W0801`.
    pub code: &'static str,
    /// What `@noWarn("…")` calls it, as p4c does where it has it; `-` and `_` are the same.
    pub names: &'static [&'static str],
    /// One line.
    pub title: &'static str,
    /// What it means, why it bites, and what to do.
    pub explanation: &'static str,
}

macro_rules! lints {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $names:expr, $title:literal, $explanation:literal;)*) => {
        $($(#[$doc])* pub(super) const $name: Lint =
            Lint { code: $code, names: &$names, title: $title, explanation: $explanation };)*
        /// All of them, by code.
        pub const LINTS: &[Lint] = &[$($name),*];
    };
}

lints! {
    /// A variable is read that has no value on some path.
    UNINITIALISED = "W0801", ["uninitialized_use", "uninitialized"], "a variable is read before it has a value",
        "A variable that is declared without initial value holds an undefined value until it is assigned. The same is true \
         of an `out` parameter at the begin of its function, action, parser or control. The value that is read may differ \
         from packet to packet and from target to target.\n\n\
         Give the variable a value where it is declared, or assign it on every path that leads to the read. An action that a \
         table runs assigns it only if the table's other actions, its default action included, do so too.";
    /// An `out` parameter has no value at the end of some path.
    OUT_NOT_WRITTEN = "W0802", ["uninitialized_out_param", "uninitialized_use"], "an `out` parameter is not written on every path",
        "An `out` parameter has no value at the begin, whatever the caller's variable held before. If some path to the end \
         does not assign it, the caller gets an undefined value there.\n\n\
         Assign it first thing, or make it `inout` if the caller's value shall be kept.";
    /// A field of a header that is invalid on all paths is used.
    INVALID_HEADER = "W0803", ["invalid_header"], "a field of an invalid header is used",
        "On every path to this place the header is invalid: nothing has extracted it or called setValid(), or setInvalid() \
         was called last. Reading a field of an invalid header gives an undefined value, writing it does nothing.\n\n\
         Call setValid() before writing the fields of a header that is added to the packet; setValid() after the writes \
         comes too late. In the `else` of a test with isValid(), another header is meant.";
    /// A field of a header that may be invalid is read, and nothing asks.
    MAYBE_INVALID = "W0804", ["invalid_header"], "a field of a header that may be invalid is read",
        "The parser accepts some packets without this header, and nothing on the way here asks isValid(). For those packets \
         the value is undefined (zero in this switch), and a table may match an entry that is meant for others.\n\n\
         Put the code or the table's apply() under if (header.isValid()), or give the table the key header.isValid().";
    /// No path leads to a parser state.
    UNREACHABLE_STATE = "W0810", ["unreachable", "parser_transition", "unused"], "a parser state cannot be reached",
        "No sequence of transitions from `start` leads to this state, so what it would extract is never extracted. Mostly a \
         `select` lacks a case for it, or has the case behind one that matches always.\n\n\
         Add a transition to the state, or remove it.";
    /// Earlier cases match everything that this one does.
    COVERED_CASE = "W0811", ["unreachable", "parser_transition"], "a select case can never match",
        "The cases of a `select` are tried in order, and the first that matches is taken. An earlier case matches \
         everything that this one does.\n\n\
         Move the more special case up, or remove it.";
    /// States that go round without taking anything from the packet.
    NO_PROGRESS = "W0812", ["parser_transition"], "a loop of the parser makes no progress",
        "The states of this loop extract nothing, advance nothing and assign nothing. Once the parser is in it, each round \
         is like the one before, until the switch gives up with the error ParserTimeout or for ever.\n\n\
         Extract or advance in the loop, or change what its `select` decides upon.";
    /// A state without `transition`.
    NO_TRANSITION = "W0813", ["parser_transition"], "a parser state has no transition",
        "A state without `transition` goes to `reject`: the parser stops there and does not accept the packet.\n\n\
         Write transition accept; if the packet is to be accepted, or transition reject; to say what is meant.";
    /// An action that nothing runs.
    UNUSED_ACTION = "W0820", ["unused"], "an action is never used",
        "No table lists the action and nothing calls it, so it never runs and the control plane cannot choose it. Mostly it \
         is missing in a table's `actions`.\n\n\
         List it, remove it, or annotate it with @noWarn(\"unused\").";
    /// A table that is not applied.
    UNUSED_TABLE = "W0821", ["unused"], "a table is never applied",
        "Nothing calls the table's apply(). The control plane sees it and can fill it, but no packet is looked up in it.\n\n\
         Apply it, remove it, or annotate it with @noWarn(\"unused\").";
    /// A variable that is not mentioned after its declaration.
    UNUSED_VARIABLE = "W0822", ["unused"], "a variable is never used",
        "The variable is declared and then neither read nor written.\n\n\
         Remove it, or annotate it with @noWarn(\"unused\").";
    /// A table looks up metadata that nothing writes.
    KEY_NEVER_SET = "W0830", ["uninitialized_use", "uninitialized"], "a key is never set",
        "The table looks up a field of the user's metadata that no parser, control or action writes. It is zero (or \
         undefined, by architecture) for all packets, so only entries for zero can ever match.\n\n\
         Assign the field before the table is applied, or use another key.";
    /// A header that leaves the packet because the deparser forgets it.
    NOT_EMITTED = "W0831", ["ordering", "unused"], "a header is extracted and never emitted",
        "Extracting takes the header from the packet, and only emit() puts it back. The deparser emits other headers and \
         not this one, so it is missing in every packet that is sent.\n\n\
         Emit it in the deparser (an invalid header emits nothing), or call setInvalid() where the header is removed on \
         purpose, which silences this.";
    /// A header that is emitted and cannot be there.
    NEVER_VALID = "W0832", ["invalid_header", "unused"], "a header is emitted that is never valid",
        "The deparser emits the header, but nothing extracts it, calls setValid() on it or assigns it: emitting an invalid header \
         does nothing.\n\n\
         Make it valid where it is meant to be added, or do not emit it.";
    /// A shift by its width or more.
    SHIFTED_OUT = "W0840", ["overflow", "mismatch"], "a shift by the value's whole width",
        "Shifting a value of W bits by W or more leaves none of them: the result is 0, or -1 if a negative value is shifted \
         right. Mostly the value is to be widened first.\n\n\
         Cast before shifting: (bit<32>) x << 24, not (bit<32>) (x << 24).";
    /// A comparison that always has the same result.
    ALWAYS_SAME = "W0841", ["mismatch", "overflow"], "a comparison always has the same result",
        "The constant lies outside of what the other side can be, or at its border, so the comparison is true, or false, \
         for all values: an unsigned value is never less than 0, a `bit<8>` never greater than 255, `x & 0x0f` never 0x10.\n\n\
         Check the constant, the mask and the width; a value that must be negative needs the type `int<W>`.";
}
