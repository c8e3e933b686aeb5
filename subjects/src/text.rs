//! Macros for types that are written as text.

/// Declares an enum whose variants have names, and the error for a text that is none of them.
macro_rules! named_enum {
    (
        $(#[$about:meta])*
        pub enum $name:ident { $($(#[$about_variant:meta])* $variant:ident = $text:literal,)+ }

        $(#[$about_error:meta])*
        pub struct $error:ident;
    ) => {
        $(#[$about])*
        pub enum $name { $($(#[$about_variant])* $variant,)+ }

        impl $name {
            pub const ALL: [Self; [$($text),+].len()] = [$(Self::$variant),+];

            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        #[derive(Debug, PartialEq, Eq, thiserror::Error)]
        $(#[$about_error])*
        pub struct $error(String);

        impl std::str::FromStr for $name {
            type Err = $error;

            fn from_str(text: &str) -> Result<Self, $error> {
                Self::ALL.into_iter().find(|it| it.as_str() == text).ok_or_else(|| $error(text.to_owned()))
            }
        }
    };
}

/// Implements what a type that keeps its text in `$text` needs beside `FromStr`: `Display`, `Debug`,
/// `Serialize`, and `TryFrom<String>`, through which serde reads it.
macro_rules! kept_as_text {
    ($name:ident, $text:tt, $error:ident) => {
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.$text)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.$text)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.$text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = $error;

            fn try_from(text: String) -> Result<Self, $error> {
                text.parse()
            }
        }
    };
}

pub(crate) use {kept_as_text, named_enum};
