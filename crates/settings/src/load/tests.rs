use std::fs;

use crate::{Error, Flags, Loaded, NatsTls, Program, Text};

crate::section! {
    struct Raw {
        /// Its name.
        name: Option<Text>,
        nats: Nats,
        /// A list.
        hosts: Vec<String> = ["a".to_owned()],
    }
}

crate::section! {
    struct Nats {
        /// Where it is.
        url: Text = "nats://127.0.0.1:4222",
        tls: NatsTls,
    }
}

const PROGRAM: Program = Program {
    name: "example",
    default_file: "no-such-file.toml",
    prefix: "EXAMPLE_",
    plain_variables: &[("PLAIN_NAME", "name")],
    renamed: &[("nats.tls", "nats.tls.required"), ("nats.ca_file", "nats.tls.ca_file")],
    explain_unknown: |_| None,
};

fn load(file: Option<&str>, pairs: &[&str], variables: &[(&str, &str)]) -> Result<Loaded<Raw>, Error> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("example.toml");
    let named = file.map(|text| {
        fs::write(&path, text).unwrap();
        path.as_path()
    });
    let pairs: Vec<String> = pairs.iter().map(|pair| (*pair).to_owned()).collect();
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    PROGRAM.load(named, Flags::from_pairs(&pairs)?, variables)
}

fn url_and_source(loaded: &Loaded<Raw>) -> (String, String) {
    (loaded.raw.nats.url.0.clone(), loaded.checker().source_of("nats.url"))
}

#[test]
fn flag_beats_file_beats_environment_beats_default() {
    let (file, pairs, variables) =
        (Some("nats.url = 'file'"), ["nats.url=flag"], [("EXAMPLE_NATS__URL", "variable")]);
    let flag = load(file, &pairs, &variables).unwrap();
    assert_eq!(url_and_source(&flag), ("flag".to_owned(), "flag".to_owned()));
    let from_file = load(file, &[], &variables).unwrap();
    assert_eq!(from_file.raw.nats.url.0, "file");
    assert!(from_file.checker().source_of("nats.url").ends_with("example.toml"));
    let variable = load(None, &[], &variables).unwrap();
    assert_eq!(
        url_and_source(&variable),
        ("variable".to_owned(), "environment EXAMPLE_NATS__URL".to_owned())
    );
    let default = load(None, &[], &[]).unwrap();
    assert_eq!(url_and_source(&default), ("nats://127.0.0.1:4222".to_owned(), "default".to_owned()));
}

#[test]
fn former_keys_are_accepted_from_every_source_with_a_warning() {
    for loaded in [
        load(Some("[nats]\ntls = true\nca_file = 'ca.pem'"), &[], &[]),
        load(None, &["nats.tls=true", "nats.ca_file=ca.pem"], &[]),
        load(None, &[], &[("EXAMPLE_NATS__TLS", "true"), ("EXAMPLE_NATS__CA_FILE", "ca.pem")]),
    ] {
        let loaded = loaded.unwrap();
        let tls = &loaded.raw.nats.tls;
        assert_eq!((tls.required.as_str(), tls.ca_file.as_ref().unwrap().as_str()), ("true", "ca.pem"));
        assert_eq!(loaded.warnings[0], "setting nats.tls is deprecated: use nats.tls.required");
        assert_eq!(loaded.warnings.len(), 2, "{:?}", loaded.warnings);
    }
}

/// A former key beside a present one of the same section loses neither of them.
#[test]
fn former_and_present_keys_can_be_mixed() {
    let variables = [("EXAMPLE_NATS__TLS", "true"), ("EXAMPLE_NATS__TLS__CA_FILE", "ca.pem")];
    let flags = ["nats.tls=true", "nats.tls.ca_file=ca.pem"];
    for loaded in [load(None, &[], &variables), load(None, &flags, &[])] {
        let tls = loaded.unwrap().raw.nats.tls;
        assert_eq!((tls.required.as_str(), tls.ca_file.unwrap().as_str()), ("true", "ca.pem"));
    }
    let both = [("EXAMPLE_NATS__CA_FILE", "former"), ("EXAMPLE_NATS__TLS__CA_FILE", "present")];
    assert_eq!(load(None, &[], &both).unwrap().raw.nats.tls.ca_file.unwrap().as_str(), "present");
}

#[test]
fn plain_variable_yields_to_the_one_with_the_prefix() {
    let plain = load(None, &[], &[("PLAIN_NAME", "plain")]).unwrap();
    assert_eq!(plain.raw.name.unwrap().as_str(), "plain");
    let both = load(None, &[], &[("PLAIN_NAME", "plain"), ("EXAMPLE_NAME", "own")]).unwrap();
    assert_eq!(both.raw.name.unwrap().as_str(), "own");
}

#[test]
fn unknown_settings_are_refused_by_name() {
    let variable = load(None, &[], &[("EXAMPLE_NATS__UURL", "x")]).unwrap_err().to_string();
    assert_eq!(variable, "unknown setting EXAMPLE_NATS__UURL; `example config` lists all settings");
    let flag = load(None, &["nats.colour=red"], &[]).unwrap_err().to_string();
    assert!(flag.contains("`colour` is not a setting here; there are url, tls"), "{flag}");
    let section = load(None, &["nats=5"], &[]).unwrap_err().to_string();
    assert!(section.starts_with("nats (from flag): "), "{section}");
}

#[test]
fn file_that_is_named_must_exist() {
    let missing = std::path::Path::new("/nowhere/example.toml");
    let error = PROGRAM.load::<Raw>(Some(missing), Flags::default(), []).unwrap_err().to_string();
    assert_eq!(error, "cannot read the configuration file /nowhere/example.toml");
}

#[test]
fn description_hides_passwords_and_names_what_is_not_set() {
    let loaded = load(None, &["nats.url=nats://user:secret@host"], &[]).unwrap();
    let text = loaded.describe(|_| None);
    assert!(text.contains("nats.url = \"nats://***@host\"  # flag"), "{text}");
    assert!(text.contains("# name is not set"), "{text}");
    assert!(!text.contains("secret"), "{text}");
}

#[test]
fn reference_has_a_row_for_every_setting() {
    let table = PROGRAM.reference::<Raw>();
    assert!(table.contains("| `nats.url` | `nats://127.0.0.1:4222` | Where it is. |"), "{table}");
    assert!(table.contains("| `name` | – | Its name. |"), "{table}");
    assert!(table.contains("| `hosts` | `[\"a\"]` | A list. |"), "{table}");
    assert_eq!(table.lines().count(), 2 + 7, "{table}");
}
