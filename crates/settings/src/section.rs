//! Declaration of settings: one place for a key, its default and what it means.

use crate::Text;

/// A setting as the reference lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Dotted, as in `nats.tls.ca_file`.
    pub key: String,
    /// `None`: not set.
    pub default: Option<String>,
    pub about: String,
}

/// Lists the settings of a section, or the one setting that a field is.
pub trait Describe {
    fn describe(&self, key: &str, about: &str, settings: &mut Vec<Setting>);
}

/// Returns every setting of a program by its dotted key, in the order of their declaration.
pub fn keys<Raw: Describe + Default>() -> Vec<Setting> {
    let mut settings = Vec::new();
    Raw::default().describe("", "", &mut settings);
    settings
}

/// Declares a section of settings: its fields with documentation and default.
///
/// ```
/// settings::section! {
///     pub struct Worker {
///         /// Time without a heartbeat after which the server delivers a handoff again.
///         ack_wait: settings::Text = "30s",
///         /// Name of the instance.
///         name: Option<settings::Text>,
///     }
/// }
/// let settings = settings::keys::<Worker>();
/// assert_eq!(settings[0].key, "ack_wait");
/// assert_eq!(settings[0].default.as_deref(), Some("30s"));
/// assert_eq!(settings[1].default, None);
/// ```
#[macro_export]
macro_rules! section {
    (
        $visibility:vis struct $name:ident {
            $($(#[doc = $about:literal])* $field:ident: $kind:ty $(= $default:expr)?),* $(,)?
        }
    ) => {
        #[derive(Clone, Debug, ::serde::Serialize, ::serde::Deserialize)]
        #[serde(deny_unknown_fields, default)]
        $visibility struct $name {
            $($(#[doc = $about])* $visibility $field: $kind),*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $crate::section!(@default $($default)?)),* }
            }
        }

        impl $crate::Describe for $name {
            fn describe(&self, key: &str, _about: &str, settings: &mut Vec<$crate::Setting>) {
                $(
                    let key_of_field = $crate::private::join(key, stringify!($field));
                    self.$field.describe(&key_of_field, concat!("" $(, $about)*), settings);
                )*
            }
        }
    };
    (@default $default:expr) => { $default.into() };
    (@default) => { ::core::default::Default::default() };
}

/// Joins the key of a section and the name of a field, which may be a raw identifier.
pub fn join(key: &str, field: &str) -> String {
    let field = field.trim_start_matches("r#");
    if key.is_empty() { field.to_owned() } else { format!("{key}.{field}") }
}

fn push(settings: &mut Vec<Setting>, key: &str, about: &str, default: Option<String>) {
    settings.push(Setting { key: key.to_owned(), default, about: about.trim().to_owned() });
}

impl Describe for Text {
    fn describe(&self, key: &str, about: &str, settings: &mut Vec<Setting>) {
        push(settings, key, about, Some(self.0.clone()));
    }
}

impl Describe for Option<Text> {
    fn describe(&self, key: &str, about: &str, settings: &mut Vec<Setting>) {
        push(settings, key, about, self.as_ref().map(|text| text.0.clone()));
    }
}

/// Lists are settings of their own; only lists of text have defaults that are not empty.
impl<T: serde::Serialize> Describe for Vec<T> {
    fn describe(&self, key: &str, about: &str, settings: &mut Vec<Setting>) {
        let default = figment::value::Value::serialize(self).map(|value| crate::text::show(&value));
        push(settings, key, about, default.ok());
    }
}
