//! Tests of the validator that the other tests rely on: each rule of it finds its fault.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a helper that fails fails its test"
)]

#[allow(
    dead_code,
    reason = "each test program uses its part of what they share"
)]
mod support;

use serde_json::{Value, json};
use support::schema::validate;

fn faults(document: &Value) -> Vec<String> {
    let schema = json!({
        "type": "object",
        "required": ["name", "size"],
        "properties": {
            "name": { "enum": ["a", "b"] },
            "size": { "$ref": "#/$defs/size" },
            "kind": { "const": "x" },
            "list": { "type": "array", "items": { "type": "string" } },
            "either": { "oneOf": [{ "type": "null" }, { "type": "boolean" }] },
        },
        "$defs": { "size": { "type": "integer", "minimum": 1 } },
    });
    validate(&schema, document)
}

#[test]
fn a_sound_document_has_no_fault() {
    let sound = json!({ "name": "a", "size": 1, "kind": "x", "list": ["y"], "either": null });
    assert_eq!(faults(&sound), [] as [&str; 0]);
}

#[test]
fn each_rule_finds_its_fault() {
    for (document, expected) in [
        (json!([]), r#": [] is not of type "object""#),
        (json!({ "size": 1 }), ": name is missing"),
        (
            json!({ "name": "c", "size": 1 }),
            r#".name: "c" is none of ["a","b"]"#,
        ),
        (json!({ "name": "a", "size": 0 }), ".size: 0 is below 1"),
        (
            json!({ "name": "a", "size": "1" }),
            r#".size: "1" is not of type "integer""#,
        ),
        (
            json!({ "name": "a", "size": 1, "kind": "y" }),
            r#".kind: "y" is not "x""#,
        ),
        (
            json!({ "name": "a", "size": 1, "list": [1] }),
            r#".list[0]: 1 is not of type "string""#,
        ),
        (
            json!({ "name": "a", "size": 1, "either": 3 }),
            ".either: fits 0 of 2 forms",
        ),
        (
            json!({ "name": "a", "size": 1, "more": 3 }),
            ".more: the schema does not name it",
        ),
    ] {
        let found = faults(&document);
        assert!(
            found.iter().any(|fault| fault == expected),
            "{document}: {found:?}"
        );
    }
}

#[test]
#[should_panic(expected = "the keyword pattern, which is not checked here")]
fn a_keyword_that_nobody_checks_is_a_panic() {
    validate(&json!({ "pattern": "x" }), &json!("x"));
}
