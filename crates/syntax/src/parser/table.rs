//! Tables (P4_16, section "Tables").

use super::*;
use crate::ast::{
    ActionRef, Annotation, Decl, DeclKind, Entry, KeyElement, TableDecl, TableProperty, TablePropertyKind,
};

impl Parser<'_> {
    pub(super) fn table(&mut self, annotations: Vec<Annotation>) -> Parse<Decl> {
        let start = self.bump().span;
        let name = self.name("a table's name")?;
        self.declare(&name, NameKind::Value);
        let open = self.expect(TokenKind::LBrace)?;
        let properties = self.items_until_brace(open, |p, properties| {
            properties.push(p.property()?);
            Ok(())
        })?;
        Ok(self.decl_node(annotations, name, DeclKind::Table(TableDecl { properties }), start))
    }

    fn property(&mut self) -> Parse<TableProperty> {
        let annotations = self.annotations()?;
        let start = self.span();
        let is_const = self.eat(TokenKind::Const);
        let which = self.property_kind();
        let name = self.name("a table property")?;
        if !self.at(TokenKind::Eq) {
            return self.unexpected_property(&name);
        }
        self.bump();
        let kind = match which {
            TokenKind::Key => TablePropertyKind::Key(self.braced(Self::key_element)?),
            TokenKind::Actions => TablePropertyKind::Actions(self.braced(Self::action_list_element)?),
            TokenKind::Entries => TablePropertyKind::Entries(self.braced(Self::entry)?),
            _ => {
                let value = self.expr()?;
                self.expect_semi();
                TablePropertyKind::Value(value)
            }
        };
        let span = self.since(start);
        if is_const && matches!(kind, TablePropertyKind::Key(_) | TablePropertyKind::Actions(_)) {
            self.misplaced(start, format!("`const` is not allowed on `{name}`"), "remove `const`");
        }
        Ok(TableProperty { annotations, is_const, name, kind, span })
    }

    /// The keyword of the property here. A similar name before a group that cannot be an expression (`keys = { x :
    /// exact; }`) is treated as that keyword, with an error.
    fn property_kind(&mut self) -> TokenKind {
        let token = self.token();
        if token.kind != TokenKind::Ident || self.ahead(2).kind != TokenKind::LBrace {
            return token.kind;
        }
        let mut pos = self.pos + 3;
        while !matches!(
            self.tokens[pos].kind,
            TokenKind::Semi | TokenKind::Colon | TokenKind::LBrace | TokenKind::RBrace | TokenKind::Eof
        ) {
            pos += 1;
        }
        let near = similar(token.text(), ["key", "actions", "entries"].into_iter());
        match near {
            Some(near) if matches!(self.tokens[pos].kind, TokenKind::Semi | TokenKind::Colon) => {
                let message = format!("unknown table property `{}`", token.text());
                let diag = Diagnostic::error(codes::MISSPELT_KEYWORD, token.span, message);
                self.report(diag.help(format!("did you mean `{near}`?")));
                TokenKind::keyword(near).unwrap_or(token.kind)
            }
            _ => token.kind,
        }
    }

    fn unexpected_property<T>(&mut self, name: &Name) -> Parse<T> {
        let known = ["key", "actions", "entries", "default_action", "size"];
        let found = self.describe();
        let message = format!("expected `=` after the table property `{name}`, found {found}");
        let mut diag = Diagnostic::error(codes::UNEXPECTED_TOKEN, self.span(), message);
        if let Some(near) = similar(name.as_str(), known.into_iter()) {
            diag = diag.help(format!("did you mean `{near}`?"));
        }
        self.report(diag);
        Err(Failed)
    }

    /// `{ items }`.
    fn braced<T>(&mut self, item: fn(&mut Self) -> Parse<T>) -> Parse<Vec<T>> {
        let open = self.expect(TokenKind::LBrace)?;
        self.items_until_brace(open, |p, items| {
            items.push(item(p)?);
            Ok(())
        })
    }

    fn key_element(&mut self) -> Parse<KeyElement> {
        let start = self.span();
        let expr = self.expr()?;
        if !self.at(TokenKind::Colon) {
            let found = self.describe();
            let diag = Diagnostic::error(
                codes::UNEXPECTED_TOKEN,
                self.span(),
                format!("expected `:` and a match kind after the key, found {found}"),
            );
            self.report(diag.help("write for example `hdr.ipv4.dst : lpm;`"));
            return Err(Failed);
        }
        self.bump();
        let match_kind = self.name("a match kind")?;
        let annotations = self.annotations()?;
        self.expect_semi();
        Ok(KeyElement { expr, match_kind, annotations, span: self.since(start) })
    }

    fn action_list_element(&mut self) -> Parse<ActionRef> {
        let annotations = self.annotations()?;
        let action = self.action_ref(annotations)?;
        self.expect_semi();
        Ok(action)
    }

    fn action_ref(&mut self, annotations: Vec<Annotation>) -> Parse<ActionRef> {
        let start = self.span();
        let path = self.path("an action's name")?;
        let args = if self.at(TokenKind::LParen) { Some(self.args()?) } else { None };
        Ok(ActionRef { id: self.expr_id(), annotations, path, args, span: self.since(start) })
    }

    fn entry(&mut self) -> Parse<Entry> {
        let start = self.span();
        let is_const = self.eat(TokenKind::Const);
        let mut priority = None;
        if self.at(TokenKind::Priority) && self.ahead(1).kind == TokenKind::Eq {
            self.bump();
            self.bump();
            if !matches!(self.kind(), TokenKind::Int | TokenKind::LParen) {
                return self.unexpected("an integer or a parenthesised expression as priority");
            }
            priority = Some(self.expr()?);
            self.expect(TokenKind::Colon)?;
        }
        let keyset = self.keyset()?;
        self.expect(TokenKind::Colon)?;
        let action = self.action_ref(Vec::new())?;
        let annotations = self.annotations()?;
        self.expect_semi();
        Ok(Entry { is_const, priority, keyset, action, annotations, span: self.since(start) })
    }
}
