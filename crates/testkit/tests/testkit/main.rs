//! Tests of the test tools: one binary, because each binary costs time to link.

mod browser;
mod gateway;
mod peers;
mod postgres;
mod upstream;
