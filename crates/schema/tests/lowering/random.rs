//! Random schemas through every engine that we know. `SCHEMA_SEED` repeats a run.

use rand::{Rng, SeedableRng, rngs::SmallRng};
use schema::{Form, Schema, Validator};
use serde_json::Value;

use super::{generator, sample};

const SCHEMAS: usize = 400;
const VALUES: usize = 20;
const FORMS: [Form; 3] = [Form::TOOL, Form::GRAMMAR, Form::STRICT];
/// What JSON Schemas of every dialect have, and no more.
const KEYWORDS: [&str; 8] =
    ["type", "enum", "anyOf", "items", "properties", "required", "additionalProperties", "description"];

fn seed() -> u64 {
    let seed = std::env::var("SCHEMA_SEED").ok().map(|seed| seed.parse().expect("a whole number"));
    let seed = seed.unwrap_or_else(|| rand::rng().random());
    println!("SCHEMA_SEED={seed}");
    seed
}

fn random_schemas() -> Vec<Value> {
    let mut rng = SmallRng::seed_from_u64(seed());
    (0..SCHEMAS).map(|_| generator::tool_schema(&mut rng)).collect()
}

#[test]
fn only_keywords_of_every_dialect_remain() {
    for original in random_schemas() {
        for form in FORMS {
            let written = Schema::read(&original).write(form);
            // An object with any names is an array of pairs in the strict form.
            assert!(written["type"] == "object" || form.strict, "{original}");
            assert!(written.to_string().len() < 200_000, "{original}");
            check_keywords(&written, form, &original);
        }
    }
}

fn check_keywords(schema: &Value, form: Form, original: &Value) {
    let object = schema.as_object().unwrap_or_else(|| panic!("{schema} in {original}"));
    assert!(object.contains_key("type") || object.contains_key("anyOf"), "{schema} in {original}");
    for (keyword, value) in object {
        assert!(KEYWORDS.contains(&keyword.as_str()), "{keyword} in {original}");
        match keyword.as_str() {
            "items" => check_keywords(value, form, original),
            "anyOf" => value.as_array().unwrap().iter().for_each(|it| check_keywords(it, form, original)),
            "properties" => {
                value.as_object().unwrap().values().for_each(|it| check_keywords(it, form, original));
            }
            "additionalProperties" if value.is_object() => {
                assert!(!form.strict, "{original}");
                check_keywords(value, form, original);
            }
            _ => {}
        }
    }
    if form.strict && object.get("type").is_some_and(|kind| kind == "object") {
        let properties = object["properties"].as_object().unwrap();
        assert_eq!(object["required"].as_array().unwrap().len(), properties.len(), "{original}");
        assert_eq!(object["additionalProperties"], false, "{original}");
    }
}

/// xgrammar and llguidance turn schemas into the grammars that vLLM and others constrain replies with.
#[test]
fn xgrammar_and_llguidance_accept_all_forms() {
    let schemas: Vec<Value> = random_schemas()
        .iter()
        .flat_map(|original| FORMS.map(|form| Schema::read(original).write(form)))
        .collect();
    assert_eq!(testkit::grammar_refusals(&schemas), Vec::<String>::new());
}

/// What the lowered form admits is either admitted by the original too, or reported.
#[test]
fn no_value_that_the_original_refuses_goes_unreported() {
    let seed = seed();
    let mut rng = SmallRng::seed_from_u64(seed);
    let (mut admitted, mut reported) = (0_u32, 0_u32);
    for _ in 0..SCHEMAS {
        let original = generator::tool_schema(&mut rng);
        let schema = Schema::read(&original);
        let lowered = jsonschema::validator_for(&schema.write(Form::GRAMMAR)).unwrap();
        let reference = jsonschema::validator_for(&original).unwrap();
        let validator = Validator::new(&original).unwrap();
        for _ in 0..VALUES {
            let value = sample::value(&schema, Form::GRAMMAR, &mut rng);
            assert!(lowered.is_valid(&value), "{value} is not of {original}");
            let strict = sample::value(&schema, Form::STRICT, &mut rng);
            let restored = schema.restore(strict.clone());
            assert!(lowered.is_valid(&restored), "{strict} became {restored}, not of {original}");
            for value in [value, restored] {
                let is_valid = reference.is_valid(&value);
                assert_eq!(validator.check(&value).is_ok(), is_valid, "{value} of {original}");
                *(if is_valid { &mut admitted } else { &mut reported }) += 1;
            }
        }
    }
    println!("{admitted} values admitted by the original, {reported} reported");
    assert!(admitted > 1_000 && reported > 1_000, "{admitted} and {reported}");
}
