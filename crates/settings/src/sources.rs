//! Where a value came from.

use figment::Figment;

/// The names of those sources that are not files.
pub(crate) const ENVIRONMENT: &str = "environment";
pub(crate) const FLAG: &str = "flag";

/// Says where a value came from.
pub(crate) fn source_of(figment: &Figment, key: &str) -> String {
    figment.find_metadata(key).map_or_else(|| "default".to_owned(), |metadata| name_of(metadata, key))
}

pub(crate) fn name_of(metadata: &figment::Metadata, key: &str) -> String {
    let keys: Vec<&str> = key.split('.').collect();
    match (&metadata.source, &*metadata.name) {
        (Some(figment::Source::File(path)), _) => format!("file {}", path.display()),
        (_, ENVIRONMENT) => {
            format!("environment {}", metadata.interpolate(&figment::Profile::Default, &keys))
        }
        (_, FLAG) => "flag".to_owned(),
        _ => "default".to_owned(),
    }
}
