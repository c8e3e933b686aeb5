//! What a program says about its settings.

/// Where a program's settings come from.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    pub name: &'static str,
    /// The file that is read when none is named, if it exists.
    pub default_file: &'static str,
    /// Prefix of its environment variables, such as `PMA_`. `<prefix>CONFIG` names the file.
    pub prefix: &'static str,
    /// Variables without the prefix, and the settings they set.
    pub plain_variables: &'static [(&'static str, &'static str)],
    /// Former keys that are still accepted, and the present ones.
    pub renamed: &'static [(&'static str, &'static str)],
    /// Says more about certain keys that are not settings.
    pub explain_unknown: fn(&str) -> Option<String>,
}
