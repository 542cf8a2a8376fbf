//! Typed indices: the type of an index says what it refers to.
//!
//! All of them index vectors of one `ir::Program`. They are meaningless outside it and are never stored across programs
//! (objects are identified by name across a program change).

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        #[repr(transparent)]
        pub struct $name(pub u32);
        impl $name {
            /// The index into its vector.
            pub fn index(self) -> usize {
                self.0 as usize
            }
            /// The id of an index in its vector.
            pub fn from_index(index: usize) -> $name {
                $name(u32::try_from(index).expect("fewer than 2^32 items"))
            }
        }
    };
}

id!(/** A slot of the packet header vector. */ SlotId);
id!(/** A header (instance, stack elements included). */ HeaderId);
id!(/** An action. */ ActionId);
id!(/** A table (parser value sets are tables too). */ TableId);
id!(/** An extern instance: counter, meter, register, digest, action profile or selector. */ ExternId);
id!(/** A custom CRC that has a name. */ CalculationId);
id!(/** A stage: parser, control, deparser or glue. */ StageId);
id!(/** A basic block of one stage. */ BlockId);
