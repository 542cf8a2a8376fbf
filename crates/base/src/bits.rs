//! Bit-vector values of any width: the one place where P4 arithmetic is defined.
