//! Schemas are lowered to what model servers accept, whatever they look like.

mod forms;
mod generator;
mod random;
mod sample;
