//! Extern objects, extern functions and functions (P4_16, "Extern objects", "Function declarations").

use super::*;
use crate::ast::{
    Annotation, Decl, DeclKind, ExternObjectDecl, FunctionDecl, Method, MethodKind, Prototype, TypeKind, TypeRef,
};

impl Parser<'_> {
    /// `extern`: an object, a function, or a forward declaration, which has no node in the tree.
    pub(super) fn extern_decl(&mut self, annotations: Vec<Annotation>) -> Parse<Option<Decl>> {
        let start = self.expect(TokenKind::Extern)?;
        if self.kind().is_name() && self.ahead(1).kind == TokenKind::Semi {
            let name = self.name("an extern's name")?;
            self.declare(&name, NameKind::Type);
            self.bump();
            return Ok(None);
        }
        if self.kind().is_name() && self.is_extern_object() {
            return self.extern_object(annotations, start).map(Some);
        }
        let result = self.type_or_void()?;
        let name = self.name("a function's name")?;
        self.declare(&name, NameKind::Value);
        let proto = self.scoped(|p| p.signature(result))?;
        self.expect_semi();
        Ok(Some(self.decl_node(annotations, name, DeclKind::ExternFunction(proto), start)))
    }

    /// Whether an extern object follows: `name {` or `name < ... > {`.
    fn is_extern_object(&self) -> bool {
        let mut pos = self.pos + 1;
        if self.tokens[pos].kind == TokenKind::Lt {
            while !matches!(
                self.tokens[pos].kind,
                TokenKind::Gt | TokenKind::Semi | TokenKind::LBrace | TokenKind::LParen | TokenKind::Eof
            ) {
                pos += 1;
            }
            if self.tokens[pos].kind != TokenKind::Gt {
                return false;
            }
            pos += 1;
        }
        self.tokens.get(pos).is_some_and(|t| t.kind == TokenKind::LBrace)
    }

    fn extern_object(&mut self, annotations: Vec<Annotation>, start: Span) -> Parse<Decl> {
        let name = self.name("an extern's name")?;
        self.declare(&name, NameKind::Type);
        let object = self.scoped(|p| {
            let type_params = p.type_params()?;
            let open = p.expect(TokenKind::LBrace)?;
            let methods = p.items_until_brace(open, |p, methods| {
                methods.push(p.method(&name)?);
                Ok(())
            })?;
            Ok(ExternObjectDecl { type_params, methods })
        })?;
        Ok(self.decl_node(annotations, name, DeclKind::ExternObject(object), start))
    }

    fn method(&mut self, object: &Name) -> Parse<Method> {
        let annotations = self.annotations()?;
        let start = self.span();
        let id = self.decl_id();
        let is_abstract = self.eat(TokenKind::Abstract);
        if self.kind().is_name() && self.ahead(1).kind == TokenKind::LParen {
            let name = self.name("a method's name")?;
            if name != *object {
                let help = format!("write `void {name}(...)`; a constructor is called `{object}`");
                self.misplaced(name.span, format!("method `{name}` has no result type"), help);
            } else if is_abstract {
                self.misplaced(start, "a constructor cannot be abstract", "remove `abstract`");
            }
            let result = TypeRef { kind: TypeKind::Void, span: name.span };
            let proto = self.scoped(|p| p.signature(result))?;
            self.expect_semi();
            return Ok(Method { id, annotations, name, kind: MethodKind::Constructor, proto, span: self.since(start) });
        }
        let result = self.type_or_void()?;
        let name = self.name("a method's name")?;
        let proto = self.scoped(|p| p.signature(result))?;
        if self.at(TokenKind::LBrace) {
            let diag = Diagnostic::error(codes::MISPLACED, self.span(), "a method of an extern has no body")
                .help("an instantiation implements abstract methods: `E() e = { ... };`");
            self.report(diag);
            return Err(Failed);
        }
        self.expect_semi();
        let kind = if is_abstract { MethodKind::Abstract } else { MethodKind::Method };
        Ok(Method { id, annotations, name, kind, proto, span: self.since(start) })
    }

    /// `<T>(params)` after the name; the caller opens a scope.
    fn signature(&mut self, result: TypeRef) -> Parse<Prototype> {
        let type_params = self.type_params()?;
        let params = self.params()?;
        Ok(Prototype { result, type_params, params })
    }

    /// The part of a function declaration after its return type.
    pub(super) fn function(&mut self, annotations: Vec<Annotation>, result: TypeRef, start: Span) -> Parse<Decl> {
        let name = self.name("a function's name")?;
        self.declare(&name, NameKind::Value);
        let function = self.scoped(|p| {
            let proto = p.signature(result)?;
            if p.at(TokenKind::Semi) {
                let diag = Diagnostic::error(codes::UNEXPECTED_TOKEN, p.span(), "expected `{`, found `;`")
                    .help("a function without body is written with `extern`");
                p.report(diag);
                return Err(Failed);
            }
            let body = p.block(Vec::new())?;
            Ok(FunctionDecl { proto, body })
        })?;
        Ok(self.decl_node(annotations, name, DeclKind::Function(function), start))
    }
}
