//! P4_16 source text to syntax tree: preprocessor, lexer, parser.
