//! Loads the settings of a program from all their sources.

use std::path::{Path, PathBuf};

use figment::{
    Figment,
    providers::{Format, Serialized, Toml},
    value::Value,
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    Checker, Describe, Error, Flags, Program,
    environment::Environment,
    renamed::RenamedFile,
    section::{Setting, keys},
    sources::source_of,
    text::show,
};

/// Settings as they were written, with their sources.
#[derive(Clone, Debug)]
pub struct Loaded<Raw> {
    pub raw: Raw,
    /// The file that was read.
    pub file: Option<PathBuf>,
    /// Warnings to log once the log is open.
    pub warnings: Vec<String>,
    figment: Figment,
}

impl Program {
    /// Merges all sources. `file` is the file that a flag names; the environment is an argument, so that
    /// tests need not change the real one.
    pub fn load<Raw>(
        &self,
        file: Option<&Path>,
        flags: Flags,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Loaded<Raw>, Error>
    where
        Raw: Default + Serialize + DeserializeOwned + Describe,
    {
        let mut warnings = Vec::new();
        let known = keys::<Raw>();
        let is_known = |key: &str| known.iter().any(|setting| setting.key == key);
        let environment = Environment::new(self, is_known, environment, &mut warnings)?;
        let file = self.file(file, &environment)?;
        let mut figment = Figment::from(Serialized::defaults(Raw::default())).merge(&environment);
        if let Some(file) = &file {
            let source = Toml::file_exact(file);
            let source = RenamedFile::read(source, self.renamed, &mut warnings)
                .map_err(|error| Error::from_figment(self, &figment, *error))?;
            figment = figment.merge(source);
        }
        let figment = figment.merge(flags.rename(self.renamed, &mut warnings));
        let raw = figment.extract().map_err(|error| Error::from_figment(self, &figment, error))?;
        Ok(Loaded { raw, file, warnings, figment })
    }

    /// A file that was named must exist, the default one may be absent.
    fn file(&self, named: Option<&Path>, environment: &Environment) -> Result<Option<PathBuf>, Error> {
        let named = named.map(Path::to_owned).or_else(|| environment.config_file.as_ref().map(PathBuf::from));
        let must_exist = named.is_some();
        let path = named.unwrap_or_else(|| self.default_file.into());
        match std::fs::metadata(&path) {
            Ok(_) => Ok(Some(path)),
            Err(error) if must_exist => Err(Error::File(path, error)),
            Err(_) => Ok(None),
        }
    }
}

impl<Raw: Describe + Default> Loaded<Raw> {
    pub fn checker(&self) -> Checker<'_> {
        Checker::new(&self.figment)
    }

    /// Lists every setting as a line of TOML with its source, then the warnings. Secrets are in files, so
    /// only their paths show; a URL is shown without its password. `effective` says which value counts where
    /// it is not the one that was written.
    pub fn describe(&self, effective: impl Fn(&str) -> Option<String>) -> String {
        let mut settings = keys::<Raw>();
        settings.sort_by(|a, b| a.key.cmp(&b.key));
        let line = |Setting { key, .. }: &Setting| match effective(key).or_else(|| self.value(key)) {
            Some(value) => format!("{key} = {value}  # {}", source_of(&self.figment, key)),
            None => format!("# {key} is not set"),
        };
        let warnings = self.warnings.iter().map(|warning| format!("# warning: {warning}"));
        settings.iter().map(line).chain(warnings).collect::<Vec<_>>().join("\n")
    }

    fn value(&self, key: &str) -> Option<String> {
        match self.figment.find_value(key) {
            Ok(Value::Empty(..)) | Err(_) => None,
            // Any of these may carry a password.
            Ok(Value::String(_, url)) if key.ends_with("url") || key.ends_with("endpoint") => {
                Some(format!("{:?}", broker::redact_url(&url)))
            }
            Ok(value) => Some(show(&value)),
        }
    }
}

#[cfg(test)]
mod tests;
