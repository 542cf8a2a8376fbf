//! Typed ids: indices into the vectors of the type table and of the typed program.

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub struct $name(pub u32);
        impl $name {
            /// The index into its vector.
            pub fn index(self) -> usize {
                self.0 as usize
            }
            /// The id of an index in its vector.
            pub fn from_index(index: usize) -> $name {
                $name(index as u32)
            }
        }
    };
}

id!(/** A struct, header or header union: index into [`crate::types::TypeTable::structs`]. */ StructId);
id!(/** An enum of either kind: index into [`crate::types::TypeTable::enums`]. */ EnumId);
id!(/** A `type` declaration: index into [`crate::types::TypeTable::newtypes`]. */ NewtypeId);
id!(/** A parser, control or package type as named: index into [`crate::types::TypeTable::block_types`]. */ BlockTypeId);
id!(/** A type parameter, or a type still to be found by inference. */ TypeVar);
id!(/** A function with a body: index into [`crate::typed::Program::functions`]. */ FunctionId);
id!(/** An extern function: index into [`crate::typed::Program::extern_functions`]. */ ExternFunctionId);
id!(/** An extern object type: index into [`crate::typed::Program::externs`]. */ ExternId);
id!(/** An action: index into [`crate::typed::Program::actions`]. */ ActionId);
id!(/** A table: index into [`crate::typed::Program::tables`]. */ TableId);
id!(/** A control: index into [`crate::typed::Program::controls`]. */ ControlId);
id!(/** A parser: index into [`crate::typed::Program::parsers`]. */ ParserId);
id!(/** A frame: index into [`crate::typed::Program::frames`]. */ FrameId);
id!(/** A variable or parameter: index into [`crate::typed::Frame::locals`] of the frame of the body it stands in. */ LocalId);
id!(/** A parser value set: index into [`crate::typed::Program::value_sets`]. */ ValueSetId);
id!(/** An elaborated instance: index into [`crate::typed::Program::instances`]. */ InstanceId);
