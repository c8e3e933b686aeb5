//! Validates values against the original schema.

use jsonschema::PatternOptions;
use serde_json::Value;

/// At most this many errors are reported at once.
const MAX_ERRORS: usize = 4;

/// Validates arguments against the schema of a tool.
#[derive(Debug)]
pub struct Validator(jsonschema::Validator);

impl Validator {
    /// Returns an error text if the schema itself is invalid.
    pub fn new(schema: &Value) -> Result<Self, String> {
        // Without look-ahead in patterns, so that a schema cannot cause excessive backtracking.
        let options = jsonschema::options().with_pattern_options(PatternOptions::regex());
        options.build(schema).map(Self).map_err(|error| error.to_string())
    }

    /// Returns what is wrong with the arguments, in words for the caller.
    pub fn check(&self, arguments: &Value) -> Result<(), String> {
        let errors: Vec<String> = self
            .0
            .iter_errors(arguments)
            .take(MAX_ERRORS)
            .map(|error| {
                // Values are left out: they may be secret.
                let (place, masked) = (error.instance_path().to_string(), error.masked());
                if place.is_empty() { masked.to_string() } else { format!("{place}: {masked}") }
            })
            .collect();
        if errors.is_empty() { Ok(()) } else { Err(errors.join("; ")) }
    }
}
