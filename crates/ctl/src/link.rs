//! Connects to NATS with the options of the command line.

use broker::{Auth, Broker, Options, Tls};

use crate::{cli::Link, error::Error};

pub(crate) async fn connect(link: &Link) -> Result<Broker, Error> {
    let auth = match (&link.creds, &link.nkey) {
        (Some(creds), _) => Auth::Creds(creds.clone()),
        (None, Some(nkey)) => Auth::Nkey(nkey.clone()),
        (None, None) => Auth::None,
    };
    let options = Options {
        url: link.server.clone(),
        name: format!("cynodectl/{}", env!("CARGO_PKG_VERSION")),
        auth,
        tls: Tls {
            required: false,
            ca_file: link.tls_ca.clone(),
            identity: link.tls_cert.clone().zip(link.tls_key.clone()),
        },
        inbox_prefix: Some(link.inbox_prefix.clone()),
        layout: link.layout,
    };
    Ok(broker::connect(&options).await?)
}
