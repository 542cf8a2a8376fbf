//! Diagnostics as JSON, one object per line, for editors and scripts (`sluice check --format json`).
//!
//! The fields are a stable interface: fields may be added, never renamed. `file`, `line`, `column` (from 1, in
//! characters) are absent when the diagnostic has no position; `end_line`, `end_column` are one past the last
//! character.

use base::{Diagnostic, SourceMap, Span, diag::Severity};
use serde_json::{Map, Value, json};

/// Returns a diagnostic as one line, without the newline.
pub fn line(diagnostic: &Diagnostic, sources: &SourceMap) -> String {
    let mut object = Map::new();
    let severity = match diagnostic.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    object.insert("severity".into(), severity.into());
    object.insert("code".into(), diagnostic.code.into());
    object.insert("message".into(), diagnostic.message.as_str().into());
    place(&mut object, diagnostic.span, sources);
    if !diagnostic.label.is_empty() {
        object.insert("label".into(), diagnostic.label.as_str().into());
    }
    let note = |(span, text): &(Span, String)| {
        let mut note = Map::new();
        note.insert("message".into(), text.as_str().into());
        place(&mut note, *span, sources);
        Value::Object(note)
    };
    object.insert("notes".into(), diagnostic.notes.iter().map(note).collect());
    object.insert("help".into(), json!(diagnostic.help));
    Value::Object(object).to_string()
}

fn place(object: &mut Map<String, Value>, span: Span, sources: &SourceMap) {
    let Some((file, line, column)) = sources.locate(span) else { return };
    object.insert("file".into(), file.into());
    object.insert("line".into(), line.into());
    object.insert("column".into(), column.into());
    if let Some((end_line, end_column)) = sources.get(span.file).map(|f| f.line_col(span.end)) {
        object.insert("end_line".into(), end_line.into());
        object.insert("end_column".into(), end_column.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_an_object_with_its_place() {
        let mut sources = SourceMap::new();
        let file = sources.add("a.p4", "bit<8> \"x\ny\";\n");
        let found = Diagnostic::error("E0301", Span::new(file, 7, 10), "there is no \"x\"")
            .note(Span::NONE, "nowhere")
            .help("say\nx");
        let text = line(&found, &sources);
        assert!(!text.contains('\n'));
        let expected = json!({
            "severity": "error", "code": "E0301", "message": "there is no \"x\"",
            "file": "a.p4", "line": 1, "column": 8, "end_line": 2, "end_column": 1,
            "notes": [{"message": "nowhere"}], "help": "say\nx",
        });
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected);
    }
}
