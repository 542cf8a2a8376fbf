//! The codes of this crate's diagnostics; never reused for another meaning.

/// A name is not declared.
pub const NOT_DECLARED: &str = "E0301";
/// A type is not declared.
pub const NO_SUCH_TYPE: &str = "E0302";
/// A name is declared twice in one scope, or a variable hides a parameter.
pub const DECLARED_TWICE: &str = "E0303";
/// A name means another kind of thing than is needed here, or a declaration may not stand here.
pub const WRONG_KIND: &str = "E0304";
/// A field or member does not exist.
pub const NO_SUCH_MEMBER: &str = "E0305";
/// A parser state does not exist.
pub const NO_SUCH_STATE: &str = "E0306";
/// A match kind does not exist.
pub const NO_SUCH_MATCH_KIND: &str = "E0307";
/// A named argument has no parameter.
pub const NO_SUCH_PARAMETER: &str = "E0308";
/// A method does not exist.
pub const NO_SUCH_METHOD: &str = "E0309";
/// A variable of a parser or control hides a parameter.
pub const HIDES_PARAMETER: &str = "W0301";
/// Something `@deprecated` is used.
pub const DEPRECATED: &str = "W0302";
/// A value has another type than is needed.
pub const MISMATCH: &str = "E0401";
/// An operator does not take values of these types.
pub const BAD_OPERANDS: &str = "E0402";
/// A cast between these types does not exist.
pub const BAD_CAST: &str = "E0403";
/// Arguments are missing, too many, or fit no or several overloads.
pub const ARGUMENT_COUNT: &str = "E0404";
/// Something that cannot be assigned to stands where an l-value is needed.
pub const NOT_ASSIGNABLE: &str = "E0405";
/// Type arguments are missing or too many.
pub const TYPE_ARGUMENT_COUNT: &str = "E0406";
/// A type cannot be found from the context.
pub const NOT_INFERRED: &str = "E0407";
/// Something that is no function is called.
pub const NOT_CALLABLE: &str = "E0408";
/// A type may not stand here.
pub const BAD_TYPE_HERE: &str = "E0409";
/// A path through a function does not return a value.
pub const NO_RETURN: &str = "E0410";
/// A return, or the signature of an implementation, does not fit its declaration.
pub const BAD_RETURN: &str = "E0411";
/// A direction, default value or `_` may not stand here.
pub const BAD_DIRECTION: &str = "E0412";
/// An index or slice is out of range or of something that has no elements.
pub const BAD_INDEX: &str = "E0413";
/// A number needs a width here.
pub const WIDTH_NEEDED: &str = "E0414";
/// Values are missing, doubled or not possible in a record or enum.
pub const BAD_FIELDS: &str = "E0415";
/// Values of a type cannot be compared.
pub const NOT_COMPARABLE: &str = "E0416";
/// An operation or statement is not allowed at this place.
pub const NOT_HERE: &str = "E0417";
/// A `select` or keyset does not fit its keys.
pub const BAD_KEYSET: &str = "E0418";
/// A `switch` has a wrong subject or label.
pub const BAD_SWITCH: &str = "E0419";
/// A packet method is used with a type that it cannot take.
pub const BAD_PACKET_OPERATION: &str = "E0421";
/// A value is not known at compile time.
pub const NOT_CONSTANT: &str = "E0501";
/// A constant expression has no value.
pub const NO_VALUE: &str = "E0502";
/// A number or size is out of range.
pub const OUT_OF_RANGE: &str = "E0503";
/// A number does not fit its type and is cut.
pub const OVERFLOW: &str = "W0503";
/// Instances contain themselves, or are too many.
pub const NESTED_INSTANCES: &str = "E0504";
/// A `static_assert` does not hold.
pub const ASSERTION: &str = "E0505";
/// Something cannot be instantiated, or not here.
pub const BAD_INSTANCE: &str = "E0506";
/// `main` is not an instance of a package.
pub const BAD_MAIN: &str = "E0507";
/// An abstract method is not implemented.
pub const NOT_IMPLEMENTED: &str = "E0508";
/// A table property is missing, doubled or malformed.
pub const BAD_PROPERTY: &str = "E0510";
/// An action may not stand here in a table.
pub const BAD_ACTION: &str = "E0511";
/// A table key has a type that cannot be matched.
pub const BAD_KEY: &str = "E0512";
/// An entry does not fit its table.
pub const BAD_ENTRY: &str = "E0513";
/// A parser has no `start`, or a state with a built-in name.
pub const BAD_STATES: &str = "E0520";
/// A parser has no way to `accept` or `reject`.
pub const ENDLESS_PARSER: &str = "E0521";
/// An annotation is malformed or doubled.
pub const BAD_ANNOTATION: &str = "E0540";
/// Two objects have one control-plane name.
pub const CONTROL_NAME_TWICE: &str = "E0541";
/// An implementation of an abstract method uses a variable of the block around it.
pub const CAPTURE_UNSUPPORTED: &str = "E0650";
/// A construct that is not supported yet.
pub const UNSUPPORTED: &str = "E0651";
