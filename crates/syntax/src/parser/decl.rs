//! Top-level declarations, parameters, types with members, constants, actions and instantiations.

use super::types::Scan;
use super::*;
use crate::ast::{
    ActionDecl, Annotation, BlockTypeDecl, ConstDecl, Decl, DeclKind, Direction, EnumDecl, Field, FieldsDecl,
    Instantiation, Member, MembersDecl, Param, TypeRef, TypedefDecl, VariableDecl,
};

/// Keywords that start a declaration at top level.
const TOP_LEVEL: [TokenKind; 13] = [
    TokenKind::Const,
    TokenKind::Extern,
    TokenKind::Action,
    TokenKind::Parser,
    TokenKind::Control,
    TokenKind::Package,
    TokenKind::Header,
    TokenKind::HeaderUnion,
    TokenKind::Struct,
    TokenKind::Enum,
    TokenKind::Typedef,
    TokenKind::Error,
    TokenKind::MatchKind,
];

impl Parser<'_> {
    pub(super) fn program(&mut self) -> Vec<Decl> {
        let mut decls = Vec::new();
        while !self.at(TokenKind::Eof) {
            let start = self.pos;
            match self.top_level() {
                Ok(decl) => decls.extend(decl),
                Err(Failed) => {
                    // Locals of an abandoned block must not shadow later names.
                    self.in_state = false;
                    self.greater_ends = false;
                    self.recover(start);
                    if self.at(TokenKind::RBrace) {
                        self.bump();
                    }
                }
            }
        }
        decls
    }

    /// A declaration; `None` if it has no node in the tree (an empty one, an extern's forward declaration).
    fn top_level(&mut self) -> Parse<Option<Decl>> {
        if self.eat(TokenKind::Semi) {
            return Ok(None);
        }
        if self.at(TokenKind::RBrace) {
            let diag = Diagnostic::error(codes::UNCLOSED, self.span(), "`}` closes nothing");
            self.report(diag.help("remove it, or look for a `{` that is missing before"));
            self.bump();
            return Ok(None);
        }
        let annotations = self.annotations()?;
        if self.at(TokenKind::Extern) {
            return self.extern_decl(annotations);
        }
        self.declaration(annotations).map(Some)
    }

    fn declaration(&mut self, annotations: Vec<Annotation>) -> Parse<Decl> {
        use TokenKind::*;
        let start = self.span();
        match self.misspelt(&TOP_LEVEL) {
            Some(Const) => self.const_decl(annotations),
            Some(Action) => self.action(annotations),
            Some(Parser | Control) => self.parser_or_control(annotations),
            Some(Package) => self.package(annotations),
            Some(Header | HeaderUnion | Struct | Enum) => self.derived_type(annotations),
            Some(Typedef) => self.typedef(annotations),
            Some(Error) if self.ahead(1).kind == LBrace => self.members_decl(annotations),
            Some(MatchKind) if self.ahead(1).kind == LBrace => self.members_decl(annotations),
            _ if self.at(Type) && self.ahead(1).kind != LParen => self.new_type(annotations),
            _ => self.function_or_instance(annotations, start),
        }
    }

    /// The declaration keyword here. An undeclared name similar to one of `keywords` is treated as that keyword, with
    /// an error, when a name follows.
    pub(super) fn misspelt(&mut self, keywords: &[TokenKind]) -> Option<TokenKind> {
        let token = self.token();
        if keywords.contains(&token.kind) {
            return Some(token.kind);
        }
        let declared = self.scopes.lookup(token.text(), false).is_some();
        let behind = self.ahead(2).kind;
        // `T name;`, `T name = x;` and `T name<T>(...)` are plausible with an undeclared T.
        let plausible = matches!(behind, TokenKind::Semi | TokenKind::Eq | TokenKind::Lt | TokenKind::Comma);
        if token.kind != TokenKind::Ident || declared || !self.ahead(1).kind.is_name() || plausible {
            return None;
        }
        let near = similar(token.text(), keywords.iter().map(|k| k.text()))?;
        let keyword = TokenKind::keyword(near)?;
        let diag =
            Diagnostic::error(codes::MISSPELT_KEYWORD, token.span, format!("unknown keyword `{}`", token.text()))
                .help(format!("did you mean `{near}`?"));
        self.report(diag);
        Some(keyword)
    }

    pub(super) fn decl_node(&mut self, annotations: Vec<Annotation>, name: Name, kind: DeclKind, start: Span) -> Decl {
        Decl { id: self.decl_id(), annotations, name, kind, span: self.since(start) }
    }

    fn function_or_instance(&mut self, annotations: Vec<Annotation>, start: Span) -> Parse<Decl> {
        use TokenKind::*;
        if self.at(Table) || self.at(State) && self.ahead(2).kind == LBrace {
            let word = self.token().text();
            let owner = if self.at(Table) { "control" } else { "parser" };
            let message = format!("a {word} is not allowed at top level");
            let help = format!("move it into a {owner}; is there a `}}` too many before it?");
            self.misplaced(start, message, help);
            return Err(Failed);
        }
        if self.scan_type(self.pos, Scan::AnyName).is_none() {
            return self.unexpected("a declaration");
        }
        let ty = self.type_or_void()?;
        if self.at(LParen) {
            return self.instantiation(annotations, ty, start);
        }
        if self.kind().is_name() && matches!(self.ahead(1).kind, LParen | Lt) {
            return self.function(annotations, ty, start);
        }
        if !self.kind().is_name() {
            return self.unexpected("a name or `(`");
        }
        let (name, ty) = self.declarator("a name", ty)?;
        if !matches!(self.kind(), Eq | Semi) && !self.token().line_start {
            return self.unexpected("`(`");
        }
        let init = if self.eat(Eq) { Some(self.expr()?) } else { None };
        self.misplaced(
            name.span,
            format!("variable `{name}` is declared at top level"),
            "make it a `const`, or declare it in a control, parser or action",
        );
        self.declare(&name, NameKind::Value);
        self.expect_semi();
        Ok(self.decl_node(annotations, name, DeclKind::Variable(VariableDecl { ty, init }), start))
    }

    /// The part of an instantiation after its type: `(args) name;` or `(args) name = { methods };`.
    pub(super) fn instantiation(&mut self, annotations: Vec<Annotation>, ty: TypeRef, start: Span) -> Parse<Decl> {
        let args = self.args()?;
        let (name, ty) = self.declarator("an instance's name", ty)?;
        let body = if self.eat(TokenKind::Eq) {
            let open = self.expect(TokenKind::LBrace)?;
            let body = self.scoped(|p| {
                p.items_until_brace(open, |p, body| {
                    let annotations = p.annotations()?;
                    let start = p.span();
                    p.eat(TokenKind::Abstract); // older p4c programs also have it here
                    let ty = p.type_or_void()?;
                    body.push(if p.at(TokenKind::LParen) {
                        p.instantiation(annotations, ty, start)?
                    } else {
                        p.function(annotations, ty, start)?
                    });
                    Ok(())
                })
            })?;
            Some(body)
        } else {
            None
        };
        self.declare(&name, NameKind::Value);
        self.expect_semi();
        Ok(self.decl_node(annotations, name, DeclKind::Instantiation(Instantiation { ty, args, body }), start))
    }

    /// A declarator: a name with `[size]` suffixes, which wrap its type.
    pub(super) fn declarator(&mut self, what: &str, mut ty: TypeRef) -> Parse<(Name, TypeRef)> {
        let name = self.name(what)?;
        let mut sizes = 0;
        while self.at(TokenKind::LBracket) {
            sizes += 1;
            if sizes > NESTING_MAX {
                return self.too_deep();
            }
            ty = self.array_suffix(ty)?;
        }
        Ok((name, ty))
    }

    pub(super) fn const_decl(&mut self, annotations: Vec<Annotation>) -> Parse<Decl> {
        let start = self.bump().span;
        let ty = self.type_ref()?;
        let (name, ty) = self.declarator("a constant's name", ty)?;
        if self.at(TokenKind::Semi) {
            let diag =
                Diagnostic::error(codes::UNEXPECTED_TOKEN, self.span(), format!("constant `{name}` has no value"));
            self.report(diag.help("write `const T name = value;`"));
            return Err(Failed);
        }
        self.expect(TokenKind::Eq)?;
        let value = self.expr()?;
        self.declare(&name, NameKind::Value);
        self.expect_semi();
        Ok(self.decl_node(annotations, name, DeclKind::Const(ConstDecl { ty, value }), start))
    }

    pub(super) fn action(&mut self, annotations: Vec<Annotation>) -> Parse<Decl> {
        let start = self.bump().span;
        let name = self.name("an action's name")?;
        self.declare(&name, NameKind::Value);
        let action = self.scoped(|p| {
            let params = p.params()?;
            let body = p.block(Vec::new())?;
            Ok(ActionDecl { params, body })
        })?;
        Ok(self.decl_node(annotations, name, DeclKind::Action(action), start))
    }

    fn package(&mut self, annotations: Vec<Annotation>) -> Parse<Decl> {
        let start = self.bump().span;
        let name = self.name("a package's name")?;
        self.declare(&name, NameKind::Type);
        let decl = self.scoped(|p| {
            let type_params = p.type_params()?;
            let params = p.params()?;
            Ok(BlockTypeDecl { type_params, params })
        })?;
        self.expect_semi();
        Ok(self.decl_node(annotations, name, DeclKind::PackageType(decl), start))
    }

    /// `(parameterList)`, declared in the current scope.
    pub(super) fn params(&mut self) -> Parse<Vec<Param>> {
        let open = self.expect(TokenKind::LParen)?;
        let mut params = Vec::new();
        if !self.at(TokenKind::RParen) {
            loop {
                params.push(self.param()?);
                if !self.eat(TokenKind::Comma) {
                    break;
                }
            }
        }
        self.expect_close(TokenKind::RParen, open)?;
        // Types of later parameters do not depend on name kinds, so the names are declared only now, for the body.
        for param in &params {
            self.scopes.declare(param.name.text.clone(), NameKind::Value);
        }
        Ok(params)
    }

    fn param(&mut self) -> Parse<Param> {
        let annotations = self.annotations()?;
        let start = self.span();
        let id = self.decl_id();
        let direction = match self.kind() {
            TokenKind::In => Direction::In,
            TokenKind::Out => Direction::Out,
            TokenKind::InOut => Direction::InOut,
            _ => Direction::None,
        };
        if direction != Direction::None {
            self.bump();
        }
        let ty = self.type_ref()?;
        let (name, ty) = self.declarator("a parameter's name", ty)?;
        let default = if self.eat(TokenKind::Eq) { Some(self.expr()?) } else { None };
        Ok(Param { id, annotations, direction, ty, name, default, span: self.since(start) })
    }

    /// `header`, `header_union`, `struct` or `enum`.
    fn derived_type(&mut self, annotations: Vec<Annotation>) -> Parse<Decl> {
        let keyword =
            self.kind_or_misspelt(&[TokenKind::Header, TokenKind::HeaderUnion, TokenKind::Struct, TokenKind::Enum]);
        if keyword == TokenKind::Enum {
            return self.enum_decl(annotations);
        }
        let start = self.bump().span;
        let name = self.name("a type's name")?;
        self.declare(&name, NameKind::Type);
        let decl = self.scoped(|p| {
            let type_params = p.type_params()?;
            let open = p.expect(TokenKind::LBrace)?;
            let fields = p.items_until_brace(open, |p, fields| {
                fields.push(p.field()?);
                Ok(())
            })?;
            Ok(FieldsDecl { type_params, fields })
        })?;
        let kind = match keyword {
            TokenKind::Header => DeclKind::Header(decl),
            TokenKind::HeaderUnion => DeclKind::HeaderUnion(decl),
            _ => DeclKind::Struct(decl),
        };
        Ok(self.decl_node(annotations, name, kind, start))
    }

    /// The keyword here, or the one that a misspelt name (already reported) stands for.
    fn kind_or_misspelt(&self, keywords: &[TokenKind]) -> TokenKind {
        if keywords.contains(&self.kind()) {
            return self.kind();
        }
        let near = similar(self.token().text(), keywords.iter().map(|k| k.text()));
        near.and_then(TokenKind::keyword).unwrap_or(keywords[0])
    }

    fn field(&mut self) -> Parse<Field> {
        let annotations = self.annotations()?;
        let start = self.span();
        let id = self.decl_id();
        let ty = self.type_ref()?;
        let (name, ty) = self.declarator("a field's name", ty)?;
        self.expect_semi();
        Ok(Field { id, annotations, ty, name, span: self.since(start) })
    }

    fn enum_decl(&mut self, annotations: Vec<Annotation>) -> Parse<Decl> {
        let start = self.bump().span;
        let plain = self.kind().is_name() && self.ahead(1).kind == TokenKind::LBrace;
        let repr = if plain { None } else { Some(self.type_ref()?) };
        let name = self.name("an enum's name")?;
        self.declare(&name, NameKind::Type);
        let members = self.members(repr.is_some())?;
        Ok(self.decl_node(annotations, name, DeclKind::Enum(EnumDecl { repr, members }), start))
    }

    /// `error { }` or `match_kind { }`.
    fn members_decl(&mut self, annotations: Vec<Annotation>) -> Parse<Decl> {
        let keyword = self.bump();
        let name = name_of(keyword);
        let decl = MembersDecl { members: self.members(false)? };
        let kind = if keyword.kind == TokenKind::Error { DeclKind::Error(decl) } else { DeclKind::MatchKind(decl) };
        Ok(self.decl_node(annotations, name, kind, keyword.span))
    }

    /// `{ A, B }` or `{ A = 1, B = 2 }`, the last comma optional.
    fn members(&mut self, with_values: bool) -> Parse<Vec<Member>> {
        let open = self.expect(TokenKind::LBrace)?;
        let mut members = Vec::new();
        while !self.at(TokenKind::RBrace) {
            let annotations = self.annotations()?;
            let name = self.name("a member's name")?;
            let mut value = None;
            if self.at(TokenKind::Eq) {
                let eq = self.bump().span;
                value = Some(self.expr()?);
                if !with_values {
                    let help = "only an enum with an underlying type has values: `enum bit<8> E { A = 1 }`";
                    self.misplaced(eq, format!("member `{name}` cannot have a value"), help);
                }
            } else if with_values {
                let found = self.describe();
                let message = format!("expected `=` and a value after `{name}`, found {found}");
                let diag = Diagnostic::error(codes::UNEXPECTED_TOKEN, self.span(), message);
                self.report(diag.help("each member of an enum with an underlying type has a value"));
            }
            members.push(Member { id: self.decl_id(), annotations, name, value });
            if !self.eat(TokenKind::Comma) {
                break;
            }
        }
        self.expect_close(TokenKind::RBrace, open)?;
        Ok(members)
    }

    fn typedef(&mut self, annotations: Vec<Annotation>) -> Parse<Decl> {
        use TokenKind::*;
        let start = self.bump().span;
        let inner = self.annotations()?;
        let (decl, what) = if matches!(self.kind(), Header | HeaderUnion | Struct | Enum) {
            (TypedefDecl::Derived(Box::new(self.derived_type(inner)?)), "the new type's name")
        } else {
            (TypedefDecl::Type(self.type_ref()?), "the new type's name")
        };
        let (name, decl) = match decl {
            TypedefDecl::Type(ty) => {
                let (name, ty) = self.declarator(what, ty)?;
                (name, TypedefDecl::Type(ty))
            }
            derived => (self.name(what)?, derived),
        };
        self.declare(&name, NameKind::Type);
        self.expect_semi();
        Ok(self.decl_node(annotations, name, DeclKind::Typedef(decl), start))
    }

    /// `type T name;`
    fn new_type(&mut self, annotations: Vec<Annotation>) -> Parse<Decl> {
        let start = self.bump().span;
        let ty = self.type_ref()?;
        let (name, ty) = self.declarator("the new type's name", ty)?;
        self.declare(&name, NameKind::Type);
        self.expect_semi();
        Ok(self.decl_node(annotations, name, DeclKind::NewType(ty), start))
    }
}
