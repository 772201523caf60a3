//! Validates documents against the checked-in schema.
//!
//! Promises: a keyword that it does not know is a panic, so that the schema can't say what nobody checks; stricter than JSON
//! Schema in one point: a field that the schema does not name is a fault, because the checked-in schema names them all. Does not do:
//! anything beyond the keywords that the schema uses.

use serde_json::{Map, Value};

const SCHEMA: &str = include_str!("../../schema/report-1.schema.json");

/// Panics with every fault if the document does not keep to the schema.
pub(crate) fn assert_valid(document: &Value) {
    let schema: Value = serde_json::from_str(SCHEMA).expect("the schema is JSON");
    let faults = validate(&schema, document);
    assert!(faults.is_empty(), "{}\n{document:#}", faults.join("\n"));
}

/// Every fault of the document.
pub(crate) fn validate(schema: &Value, document: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    Validator { root: schema }.check(schema, document, "", &mut faults);
    faults
}

struct Validator<'a> {
    root: &'a Value,
}

impl Validator<'_> {
    fn check(&self, schema: &Value, value: &Value, at: &str, faults: &mut Vec<String>) {
        let schema = schema.as_object().expect("a schema is an object");
        for (keyword, rule) in schema {
            match keyword.as_str() {
                "$schema" | "$id" | "$defs" | "title" | "description" | "required" => {}
                "$ref" => self.check(self.resolve(rule), value, at, faults),
                "const" => {
                    if value != rule {
                        faults.push(format!("{at}: {value} is not {rule}"));
                    }
                }
                "enum" => {
                    if !rule.as_array().expect("enum is a list").contains(value) {
                        faults.push(format!("{at}: {value} is none of {rule}"));
                    }
                }
                "type" => {
                    if !types(rule).iter().any(|name| is_type(value, name)) {
                        faults.push(format!("{at}: {value} is not of type {rule}"));
                    }
                }
                "minimum" => {
                    if value
                        .as_f64()
                        .is_some_and(|value| value < rule.as_f64().unwrap())
                    {
                        faults.push(format!("{at}: {value} is below {rule}"));
                    }
                }
                "items" => {
                    for (place, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.check(rule, item, &format!("{at}[{place}]"), faults);
                    }
                }
                "properties" => {
                    if let Some(object) = value.as_object() {
                        self.properties(schema, rule, object, at, faults);
                    }
                }
                "oneOf" => self.one_of(rule, value, at, faults),
                other => panic!("the schema uses the keyword {other}, which is not checked here"),
            }
        }
    }

    fn properties(
        &self,
        schema: &Map<String, Value>,
        rule: &Value,
        object: &Map<String, Value>,
        at: &str,
        faults: &mut Vec<String>,
    ) {
        let known = rule.as_object().expect("properties is an object");
        let required = schema.get("required").and_then(Value::as_array);
        for name in required.into_iter().flatten() {
            let name = name.as_str().expect("required lists names");
            assert!(
                known.contains_key(name),
                "{name} is required and not described"
            );
            if !object.contains_key(name) {
                faults.push(format!("{at}: {name} is missing"));
            }
        }
        for (name, value) in object {
            match known.get(name) {
                Some(rule) => self.check(rule, value, &format!("{at}.{name}"), faults),
                None => faults.push(format!("{at}.{name}: the schema does not name it")),
            }
        }
    }

    fn one_of(&self, rule: &Value, value: &Value, at: &str, faults: &mut Vec<String>) {
        let branches = rule.as_array().expect("oneOf is a list");
        let of_each: Vec<Vec<String>> = branches
            .iter()
            .map(|branch| {
                let mut faults = Vec::new();
                self.check(branch, value, at, &mut faults);
                faults
            })
            .collect();
        let fitting = of_each.iter().filter(|faults| faults.is_empty()).count();
        if fitting == 1 {
            return;
        }
        faults.push(format!("{at}: fits {fitting} of {} forms", branches.len()));
        // The form with the fewest faults is the one that was meant.
        let meant = of_each.into_iter().filter(|faults| !faults.is_empty());
        faults.extend(meant.min_by_key(Vec::len).unwrap_or_default());
    }

    fn resolve(&self, reference: &Value) -> &Value {
        let path = reference.as_str().expect("a reference is a text");
        let pointer = path.strip_prefix('#').expect("references stay in the file");
        self.root
            .pointer(pointer)
            .unwrap_or_else(|| panic!("{path} leads nowhere"))
    }
}

fn types(rule: &Value) -> Vec<&str> {
    match rule {
        Value::String(name) => vec![name],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        other => panic!("type is {other}"),
    }
}

fn is_type(value: &Value, name: &str) -> bool {
    match name {
        "array" => value.is_array(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "null" => value.is_null(),
        "object" => value.is_object(),
        "string" => value.is_string(),
        other => panic!("the schema uses the type {other}"),
    }
}
