//! The codes of this crate's diagnostics: one for each kind of mistake, never reused with another meaning.
//!
//! Numbers from x30 and x40 on are more specific than an older code of the group. `crates/frontend/explain/` has the
//! text of `sluice explain` for each.

/// A name is not declared.
pub const NOT_DECLARED: &str = "E0301";
/// A type is not declared.
pub const NO_SUCH_TYPE: &str = "E0302";
/// A name is declared twice in one scope.
pub const DECLARED_TWICE: &str = "E0303";
/// The name of a type, action, table or function is used as a value.
pub const WRONG_KIND: &str = "E0304";
/// A field or member does not exist.
pub const NO_SUCH_MEMBER: &str = "E0305";
/// A parser state does not exist.
pub const NO_SUCH_STATE: &str = "E0306";
/// A match kind does not exist.
pub const NO_SUCH_MATCH_KIND: &str = "E0307";
/// A named argument has no matching parameter.
pub const NO_SUCH_PARAMETER: &str = "E0308";
/// A method does not exist.
pub const NO_SUCH_METHOD: &str = "E0309";
/// A variable of a parser or control hides a parameter.
pub const HIDES_PARAMETER: &str = "W0301";
/// Something `@deprecated` is used.
pub const DEPRECATED: &str = "W0302";
/// A value has a type other than the required one.
pub const MISMATCH: &str = "E0401";
/// An operator is not defined for values of these types.
pub const BAD_OPERANDS: &str = "E0402";
/// A cast between these types does not exist.
pub const BAD_CAST: &str = "E0403";
/// A call has too few or too many arguments.
pub const ARGUMENT_COUNT: &str = "E0404";
/// An expression that is not an l-value is used where one is required.
pub const NOT_ASSIGNABLE: &str = "E0405";
/// There are too few or too many type arguments.
pub const TYPE_ARGUMENT_COUNT: &str = "E0406";
/// A type cannot be inferred from the context.
pub const NOT_INFERRED: &str = "E0407";
/// The callee is not callable.
pub const NOT_CALLABLE: &str = "E0408";
/// A type that variables or constants cannot have.
pub const BAD_TYPE_HERE: &str = "E0409";
/// A path through a function does not return a value.
pub const NO_RETURN: &str = "E0410";
/// A `return` has a value in a `void` function, or none in another.
pub const BAD_RETURN: &str = "E0411";
/// A direction is not allowed here.
pub const BAD_DIRECTION: &str = "E0412";
/// An index is out of range.
pub const BAD_INDEX: &str = "E0413";
/// An integer needs a width here.
pub const WIDTH_NEEDED: &str = "E0414";
/// Fields are missing in a structure-valued expression.
pub const BAD_FIELDS: &str = "E0415";
/// Values of a type cannot be compared for equality.
pub const NOT_COMPARABLE: &str = "E0416";
/// A call is not allowed here.
pub const NOT_HERE: &str = "E0417";
/// `select` on values that cannot be matched.
pub const BAD_KEYSET: &str = "E0418";
/// `switch` on a value of a type that it does not support.
pub const BAD_SWITCH: &str = "E0419";
/// A packet method is used with an unsuitable type.
pub const BAD_PACKET_OPERATION: &str = "E0421";
/// A value is not known at compile time.
pub const NOT_CONSTANT: &str = "E0501";
/// A constant expression has no value.
pub const NO_VALUE: &str = "E0502";
/// A number or size is out of range.
pub const OUT_OF_RANGE: &str = "E0503";
/// A number does not fit its type and is truncated.
pub const OVERFLOW: &str = "W0503";
/// An instance would contain itself.
pub const NESTED_INSTANCES: &str = "E0504";
/// A `static_assert` does not hold.
pub const ASSERTION: &str = "E0505";
/// Something has no instances or no constructor.
pub const BAD_INSTANCE: &str = "E0506";
/// `main` is not an instance of a package.
pub const BAD_MAIN: &str = "E0507";
/// An abstract method is not implemented.
pub const NOT_IMPLEMENTED: &str = "E0508";
/// A table has no `actions`.
pub const BAD_PROPERTY: &str = "E0510";
/// Something other than an action is used where an action is required.
pub const BAD_ACTION: &str = "E0511";
/// A table key has a type that cannot be matched.
pub const BAD_KEY: &str = "E0512";
/// A keyset of an entry is not allowed for the match kind.
pub const BAD_ENTRY: &str = "E0513";
/// A parser has no state `start`.
pub const BAD_STATES: &str = "E0520";
/// No path through a parser reaches `accept` or `reject`.
pub const ENDLESS_PARSER: &str = "E0521";
/// An annotation is malformed.
pub const BAD_ANNOTATION: &str = "E0540";
/// Two objects have the same control-plane name.
pub const CONTROL_NAME_TWICE: &str = "E0541";
/// A variable inside a body has the same name as a parameter.
pub const SHADOWS_PARAMETER: &str = "E0330";
/// A name that is not a type is used as one.
pub const NOT_A_TYPE: &str = "E0332";
/// `this` outside of an abstract method's implementation.
pub const NO_THIS: &str = "E0333";
/// An enum or `error` has no such member.
pub const NO_SUCH_ENUM_MEMBER: &str = "E0334";
/// A method without a return type, or a constructor with one.
pub const METHOD_RESULT: &str = "E0335";
/// A declaration refers to itself.
pub const SELF_REFERENCE: &str = "E0336";
/// A list has too few or too many values.
pub const WRONG_LENGTH: &str = "E0440";
/// The type of an `out` or `inout` argument differs from the parameter's.
pub const OUT_ARGUMENT: &str = "E0441";
/// The two values of `?:` have different types.
pub const BRANCHES_DIFFER: &str = "E0442";
/// A `for … in` loop over something that cannot be iterated.
pub const BAD_LOOP: &str = "E0443";
/// No overload accepts these arguments.
pub const NO_OVERLOAD: &str = "E0444";
/// Several overloads accept these arguments.
pub const AMBIGUOUS_CALL: &str = "E0445";
/// A call mixes named and positional arguments.
pub const MIXED_ARGUMENTS: &str = "E0446";
/// A parameter is given two arguments.
pub const ARGUMENT_TWICE: &str = "E0447";
/// The context does not determine the type of `...` or `{#}`.
pub const SHAPE_UNKNOWN: &str = "E0448";
/// `_` is used where a type is required.
pub const DONT_CARE_TYPE: &str = "E0449";
/// A field or element cannot have this type.
pub const BAD_FIELD_TYPE: &str = "E0450";
/// A type that cannot underlie an enum, `type` or `typedef`.
pub const BAD_UNDERLYING_TYPE: &str = "E0451";
/// A type has no default value.
pub const NO_DEFAULT_VALUE: &str = "E0452";
/// A type that a function cannot return.
pub const BAD_RESULT_TYPE: &str = "E0453";
/// A type that a parameter cannot have, or not with this direction.
pub const BAD_PARAMETER_TYPE: &str = "E0454";
/// A type argument of which there can be no values.
pub const BAD_TYPE_ARGUMENT: &str = "E0455";
/// `_` is used where a value is required.
pub const DONT_CARE_VALUE: &str = "E0457";
/// An `out` or `inout` parameter has a default value.
pub const BAD_DEFAULT: &str = "E0458";
/// `@optional` on a parameter that must be given.
pub const BAD_OPTIONAL: &str = "E0459";
/// A slice is empty or out of range.
pub const BAD_SLICE: &str = "E0460";
/// An index into or slice of a value without elements or bits.
pub const NOT_INDEXABLE: &str = "E0461";
/// `exit`, `return`, `break` or `continue` is not allowed here.
pub const WRONG_PLACE_STATEMENT: &str = "E0462";
/// `next`, `last` or `lastIndex` outside of a parser.
pub const STACK_OUTSIDE_PARSER: &str = "E0463";
/// An extern's method is called in a declaration.
pub const METHOD_IN_DECLARATION: &str = "E0464";
/// The number of keysets in a case differs from the number of `select` keys.
pub const KEYSET_COUNT: &str = "E0465";
/// The element type of a value set differs from the types of the keys.
pub const VALUE_SET_TYPE: &str = "E0466";
/// A mask or range of a type that does not have them.
pub const NO_MASK_OR_RANGE: &str = "E0467";
/// A `switch` has two cases for the same value or action.
pub const CASE_TWICE: &str = "E0468";
/// `default` is not the last case, or there are two.
pub const DEFAULT_CASE: &str = "E0469";
/// A case of `action_run` is not an action of the table.
pub const CASE_NOT_ACTION: &str = "E0470";
/// A field is given twice in a structure-valued expression.
pub const FIELD_TWICE: &str = "E0471";
/// A type, constant or program exceeds a limit of the compiler.
pub const TOO_LARGE: &str = "E0550";
/// There are too many instances, or they are nested too deeply.
pub const TOO_MANY_INSTANCES: &str = "E0551";
/// An instantiation is not allowed here.
pub const INSTANCE_PLACE: &str = "E0552";
/// A cast is written as a call.
pub const CAST_AS_CALL: &str = "E0553";
/// An unnamed instance is not used.
pub const UNUSED_INSTANCE: &str = "E0554";
/// An implementation does not match its abstract method.
pub const WRONG_IMPLEMENTATION: &str = "E0555";
/// A table property is given twice.
pub const PROPERTY_TWICE: &str = "E0556";
/// An action is listed twice in a table.
pub const ACTION_TWICE: &str = "E0557";
/// An action is used in a table that does not list it.
pub const NOT_IN_TABLE: &str = "E0559";
/// A table needs a `default_action` because `NoAction` cannot be the implicit one.
pub const NEEDS_DEFAULT_ACTION: &str = "E0560";
/// A repeated directed argument differs from the one in the table's action list.
pub const ARGUMENT_DIFFERS: &str = "E0561";
/// A `@tableonly` action is the default action, or a `@defaultonly` action is used in an entry.
pub const ACTION_SCOPE: &str = "E0562";
/// An entry's priority is missing or meaningless.
pub const ENTRY_PRIORITY: &str = "E0563";
/// The number of keysets in an entry differs from the number of table keys.
pub const ENTRY_KEY_COUNT: &str = "E0564";
/// The mask of an `lpm` key is not a prefix.
pub const NOT_A_PREFIX: &str = "E0565";
/// A parser declares `accept` or `reject`.
pub const BUILT_IN_STATE: &str = "E0566";
/// A structured annotation, or a key in one, is given twice.
pub const ANNOTATION_TWICE: &str = "E0567";
/// A table without keys has entries.
pub const ENTRIES_WITHOUT_KEYS: &str = "E0568";
/// A table property precedes one that it refers to.
pub const PROPERTY_ORDER: &str = "E0569";
/// A key expression without a control-plane name has no `@name`.
pub const KEY_NEEDS_NAME: &str = "E0570";
/// Two entries of a table have the same key.
pub const ENTRY_TWICE: &str = "E0571";
/// A table has more entries than its size.
pub const MORE_ENTRIES_THAN_SIZE: &str = "W0572";
