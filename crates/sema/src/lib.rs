//! Syntax tree to typed program: names, types, constants, instances.
