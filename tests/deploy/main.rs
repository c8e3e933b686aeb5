//! Every file in `deploy/` is loaded by the program it is for, and does what it says it does.

mod chart; // Helm's templates, rendered
mod files; // configuration and error pages
mod identities; // everyone can do its work
mod kubernetes; // manifests
mod machines; // images, compose, units
mod metrics; // what is counted, shown and told
mod refusals; // nobody can do more than its work
mod settings; // what files set is a setting
mod stage; // NATS as it is deployed
mod tls; // nobody gets in without a certificate, and three nodes are one
