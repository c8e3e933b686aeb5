//! Parses values and refuses wrong ones with key, source and remedy.

use std::{net::SocketAddr, ops::RangeInclusive, path::PathBuf, str::FromStr, time::Duration};

use figment::Figment;

use crate::{Error, Text, sources::source_of};

#[derive(Clone, Copy, Debug)]
pub struct Checker<'f> {
    figment: &'f Figment,
}

impl<'f> Checker<'f> {
    pub(crate) fn new(figment: &'f Figment) -> Self {
        Self { figment }
    }

    /// Refuses a value: it is not `right`.
    pub fn wrong(&self, key: &str, found: &str, right: &str) -> Error {
        self.refuse(key, format!("`{found}` is not {right}"))
    }

    pub fn refuse(&self, key: &str, problem: impl Into<String>) -> Error {
        Error::value(self.figment, key, problem)
    }

    pub fn source_of(&self, key: &str) -> String {
        source_of(self.figment, key)
    }

    pub fn number<T>(&self, key: &str, text: &Text, range: RangeInclusive<T>) -> Result<T, Error>
    where
        T: FromStr + PartialOrd + std::fmt::Display,
    {
        let right = || format!("a whole number from {} to {}", range.start(), range.end());
        let number: T = text.0.trim().parse().map_err(|_| self.wrong(key, &text.0, &right()))?;
        if range.contains(&number) { Ok(number) } else { Err(self.wrong(key, &text.0, &right())) }
    }

    pub fn boolean(&self, key: &str, text: &Text) -> Result<bool, Error> {
        text.0.trim().parse().map_err(|_| self.wrong(key, &text.0, "true or false"))
    }

    pub fn duration(
        &self,
        key: &str,
        text: &Text,
        range: RangeInclusive<Duration>,
    ) -> Result<Duration, Error> {
        let right = || {
            let (from, to) =
                (humantime::format_duration(*range.start()), humantime::format_duration(*range.end()));
            format!("a duration from {from} to {to}, as in 30s or 500ms")
        };
        let duration =
            humantime::parse_duration(text.0.trim()).map_err(|_| self.wrong(key, &text.0, &right()))?;
        if range.contains(&duration) { Ok(duration) } else { Err(self.wrong(key, &text.0, &right())) }
    }

    /// Accepts any duration above zero.
    pub fn positive_duration(&self, key: &str, text: &Text) -> Result<Duration, Error> {
        let duration = humantime::parse_duration(text.0.trim()).ok().filter(|duration| !duration.is_zero());
        duration.ok_or_else(|| self.wrong(key, &text.0, "a duration above zero, as in 500ms, 30s or 90days"))
    }

    pub fn address(&self, key: &str, text: &Text) -> Result<SocketAddr, Error> {
        text.0.trim().parse().map_err(|_| self.wrong(key, &text.0, "an address, as in 127.0.0.1:9180"))
    }

    /// Accepts one of a few words.
    pub fn choice<T: Copy>(&self, key: &str, text: &Text, choices: &[(&str, T)]) -> Result<T, Error> {
        let chosen = choices.iter().find(|(word, _)| *word == text.0.trim());
        chosen.map(|(_, value)| *value).ok_or_else(|| {
            let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            let right = match words.split_last() {
                Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
                _ => words.concat(),
            };
            self.wrong(key, &text.0, &right)
        })
    }

    /// Accepts a file that exists, since it holds what is needed at once.
    pub fn file(&self, key: &str, text: &Text) -> Result<PathBuf, Error> {
        let path = PathBuf::from(&text.0);
        if path.is_file() { Ok(path) } else { Err(self.wrong(key, &text.0, "an existing file")) }
    }

    pub fn optional_file(&self, key: &str, text: Option<&Text>) -> Result<Option<PathBuf>, Error> {
        given(text).map(|text| self.file(key, text)).transpose()
    }
}

/// Returns the value if it is not empty: an empty value is the same as none.
pub(crate) fn given(text: Option<&Text>) -> Option<&Text> {
    text.filter(|text| !text.0.trim().is_empty())
}
