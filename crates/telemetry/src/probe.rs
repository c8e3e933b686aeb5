//! Queries the health endpoint of a program on this machine, for health checks of containers.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use reqwest::StatusCode;
use tokio::runtime::Builder;

use crate::collector::install_crypto;

const TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    #[error("creating a runtime")]
    Runtime(#[from] io::Error),
    #[error("no answer from {url}")]
    Unreachable { url: String, source: reqwest::Error },
    #[error("{url} answered {status}: {body}")]
    Unhealthy { url: String, status: StatusCode, body: String },
}

/// Requests a health endpoint of a program that listens on `listen`, and returns its answer. Blocks.
pub fn probe(listen: SocketAddr, path: &str) -> Result<String, ProbeError> {
    let url = format!("http://{}{path}", reachable(listen));
    install_crypto();
    let answer = async {
        let client = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).build()?;
        let answer = client.get(&url).send().await?;
        Ok((answer.status(), answer.text().await?))
    };
    match Builder::new_current_thread().enable_all().build()?.block_on(answer) {
        Ok((StatusCode::OK, body)) => Ok(body.trim_end().to_owned()),
        Ok((status, body)) => Err(ProbeError::Unhealthy { url, status, body: body.trim_end().to_owned() }),
        Err(source) => Err(ProbeError::Unreachable { url, source }),
    }
}

/// A program that listens on all addresses is reached on loopback.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}
