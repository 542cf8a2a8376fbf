//! Tokens: produced by the lexer, transformed by the preprocessor and read by the parser.
//!
//! A token carries its spelling if the kind does not determine it (identifiers, literals), so that a token produced by
//! a macro expansion needs no source text; its span is then that of the macro's use. Errors found by the lexer are
//! passed on as [`TokenKind::Bad`] and reported only if they reach the output of the preprocessor: text in a skipped
//! `#if` group may be anything.

use std::collections::HashMap;
use std::sync::Arc;

use base::Span;

macro_rules! token_kinds {
    (keywords { $($kw:ident $kw_text:literal,)* } symbols { $($sym:ident $sym_text:literal,)* }) => {
        /// Kinds of tokens.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum TokenKind {
            /// An identifier that is not a keyword.
            Ident,
            /// Anything that starts with a digit; checked when the parser reads it.
            Int,
            /// A string literal; the text is without quotes.
            Str,
            /// Text that is not a token.
            Bad(BadToken),
            /// End of the input.
            Eof,
            $(#[doc = concat!("`", $kw_text, "`")] $kw,)*
            $(#[doc = concat!("`", $sym_text, "`")] $sym,)*
        }

        impl TokenKind {
            /// The fixed spelling; empty for identifiers and literals.
            pub fn text(self) -> &'static str {
                match self {
                    $(TokenKind::$kw => $kw_text,)*
                    $(TokenKind::$sym => $sym_text,)*
                    _ => "",
                }
            }

            /// Whether it is a keyword, reserved or contextual.
            pub fn is_keyword(self) -> bool {
                matches!(self, $(TokenKind::$kw)|*)
            }

            /// The keyword with this spelling.
            pub fn keyword(text: &str) -> Option<TokenKind> {
                match text {
                    $($kw_text => Some(TokenKind::$kw),)*
                    _ => None,
                }
            }
        }
    };
}

token_kinds! {
    keywords {
        Abstract "abstract",
        Action "action",
        Actions "actions",
        Apply "apply",
        Bit "bit",
        Bool "bool",
        Break "break",
        Const "const",
        Continue "continue",
        Control "control",
        Default "default",
        Else "else",
        Entries "entries",
        Enum "enum",
        Error "error",
        Exit "exit",
        Extern "extern",
        False "false",
        For "for",
        Header "header",
        HeaderUnion "header_union",
        If "if",
        In "in",
        InOut "inout",
        IntType "int",
        Key "key",
        List "list",
        MatchKind "match_kind",
        Out "out",
        Package "package",
        Parser "parser",
        Priority "priority",
        Return "return",
        Select "select",
        State "state",
        StringType "string",
        Struct "struct",
        Switch "switch",
        Table "table",
        This "this",
        Transition "transition",
        True "true",
        Tuple "tuple",
        Type "type",
        Typedef "typedef",
        ValueSet "value_set",
        Varbit "varbit",
        Void "void",
        Underscore "_",
    }
    symbols {
        MaskOp "&&&",
        Dots "...",
        DotDot "..",
        Shl "<<",
        AndAnd "&&",
        OrOr "||",
        EqEq "==",
        NotEq "!=",
        GtEq ">=",
        LtEq "<=",
        PlusPlus "++",
        PlusEq "+=",
        MinusEq "-=",
        StarEq "*=",
        SlashEq "/=",
        PercentEq "%=",
        AndEq "&=",
        OrEq "|=",
        CaretEq "^=",
        ShlEq "<<=",
        PlusSatEq "|+|=",
        MinusSatEq "|-|=",
        InvalidHeader "{#}",
        PlusSat "|+|",
        MinusSat "|-|",
        Plus "+",
        Minus "-",
        Star "*",
        Slash "/",
        Percent "%",
        Or "|",
        And "&",
        Caret "^",
        Tilde "~",
        LParen "(",
        RParen ")",
        LBracket "[",
        RBracket "]",
        LBrace "{",
        RBrace "}",
        Lt "<",
        Gt ">",
        Not "!",
        Colon ":",
        Comma ",",
        Question "?",
        Dot ".",
        Eq "=",
        Semi ";",
        At "@",
        HashHash "##",
        Hash "#",
    }
}

/// What is wrong with a [`TokenKind::Bad`] token.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BadToken {
    /// A character that starts no token.
    Char,
    /// `/*` without `*/`.
    OpenComment,
    /// `"` without a closing quote.
    OpenString,
}

impl TokenKind {
    /// Whether it can be a name: an identifier or a contextual keyword (`name` in the grammar).
    pub fn is_name(self) -> bool {
        use TokenKind::*;
        matches!(self, Ident | Apply | Key | Actions | State | Entries | Type | Priority | List)
    }

    /// Whether it can be a macro's name.
    pub fn is_word(self) -> bool {
        self == TokenKind::Ident || self.is_keyword()
    }
}

/// One token.
#[derive(Clone, Debug)]
pub struct Token {
    /// Its kind.
    pub kind: TokenKind,
    /// Spelling of an identifier, literal or bad token (of a string, without quotes); `None` if the kind determines it.
    pub text: Option<Arc<str>>,
    /// Its span, or that of the macro use that produced it.
    pub span: Span,
    /// Whether it is the first on its line.
    pub line_start: bool,
    /// Whether white space or a comment precedes it.
    pub space_before: bool,
    /// Set on the name of a macro found in its own expansion: never expanded again.
    pub no_expand: bool,
}

impl Token {
    /// The spelling (of a string, without quotes).
    pub fn text(&self) -> &str {
        match &self.text {
            Some(text) => text,
            None => self.kind.text(),
        }
    }

    /// The spelling as it would be written in a program.
    pub fn spelling(&self) -> String {
        match self.kind {
            TokenKind::Str => format!("\"{}\"", self.text()),
            _ => self.text().to_owned(),
        }
    }
}

/// Shares the texts of equal identifiers within one run, so that a name costs one allocation per program.
#[derive(Default)]
pub struct Interner(HashMap<Arc<str>, Arc<str>>);

impl Interner {
    /// The shared copy of a text.
    pub fn get(&mut self, text: &str) -> Arc<str> {
        if let Some(shared) = self.0.get(text) {
            return shared.clone();
        }
        let shared: Arc<str> = text.into();
        self.0.insert(shared.clone(), shared.clone());
        shared
    }
}
