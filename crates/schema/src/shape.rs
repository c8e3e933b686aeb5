//! The shapes that every model server accepts.

use serde_json::Value;

/// A shape and what it is for.
#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    pub description: Option<String>,
    pub shape: Shape,
}

/// The values that a model may write.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    Null,
    Boolean,
    Integer,
    Number,
    String,
    /// One of these values. None of them is an array or an object, and all have the same JSON type.
    Choice(Vec<Value>),
    Array(Box<Schema>),
    /// An object with these properties and no others.
    Object(Vec<Property>),
    /// An object with any names and values of one schema.
    Map(Box<Schema>),
    /// Any of several; none of them is an `AnyOf` itself.
    AnyOf(Vec<Schema>),
}

/// A property of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Property {
    pub name: String,
    pub schema: Schema,
    pub required: bool,
}

impl Schema {
    /// Returns a schema without a description.
    pub(crate) fn new(shape: Shape) -> Self {
        Self { description: None, shape }
    }

    /// Returns the schema for a value of which nothing is known: a scalar, or an array or object of scalars.
    /// Grammars cannot be endless, so it goes no deeper.
    pub(crate) fn any() -> Self {
        let scalar = || Self::new(Shape::scalar());
        let members = [
            Shape::String,
            Shape::Number,
            Shape::Boolean,
            Shape::Null,
            Shape::Array(Box::new(scalar())),
            Shape::Map(Box::new(scalar())),
        ];
        Self::new(Shape::AnyOf(members.into_iter().map(Self::new).collect()))
    }

    /// Joins several schemas into one that admits the values of each.
    pub(crate) fn any_of(members: Vec<Self>) -> Self {
        let mut joined: Vec<Self> = Vec::new();
        for member in members {
            let several = match member.shape {
                Shape::AnyOf(members) => members,
                _ => vec![member],
            };
            for member in several {
                if !joined.iter().any(|known| known.shape == member.shape) {
                    joined.push(member);
                }
            }
        }
        let number = joined.iter().any(|member| member.shape == Shape::Number);
        joined.retain(|member| !(number && member.shape == Shape::Integer));
        match joined.len() {
            0 => Self::any(),
            1 => joined.remove(0),
            _ => Self::new(Shape::AnyOf(joined)),
        }
    }
}

impl Shape {
    /// A string, number, boolean or null.
    pub(crate) fn scalar() -> Self {
        let members = [Self::String, Self::Number, Self::Boolean, Self::Null];
        Self::AnyOf(members.into_iter().map(Schema::new).collect())
    }

    /// Returns whether null is one of the values.
    pub(crate) fn admits_null(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Choice(values) => values.iter().any(Value::is_null),
            Self::AnyOf(members) => members.iter().any(|member| member.shape.admits_null()),
            _ => false,
        }
    }
}
