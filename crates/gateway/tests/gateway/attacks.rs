//! Attacks that a tool gateway must withstand, one test each, numbered as in the list that they come from.

mod addresses;
mod governing;
mod hints;
mod identity;
mod ids;
mod limits;
mod protocol;
mod rights;
mod scripted_upstream;
mod servers;
mod unauthenticated;
