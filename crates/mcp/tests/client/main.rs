//! Tests the client against real servers: the fake gateway of the testkit, and sockets that misbehave.

mod support;
mod token;
mod tools;
mod trouble;
