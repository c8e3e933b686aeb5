//! The headers that reach MCP.

use http::{
    HeaderMap, HeaderName,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN},
    request::Parts,
};

use access::leases::LEASE_HEADER;
use policy::{InvalidProfile, MemoryProfile};

/// Header of a request that names the memory profile of the caller.
pub(super) const PROFILE_HEADER: &str = "cynode-profile";
pub(super) const MCP_HEADER_PREFIX: &str = "mcp-";
/// Headers that MCP needs, besides those with the prefix. All others are dropped, such as cookies and
/// forwarded identities.
const FORWARDED_HEADERS: [HeaderName; 4] = [HOST, ORIGIN, ACCEPT, CONTENT_TYPE];
pub(super) const DROPPED_MCP_HEADERS: [&str; 1] = ["mcp-session-id"];

/// Returns a header that is repeated although it must not be. The gateway and rmcp could each use another
/// value of it.
pub(super) fn repeated_header(headers: &HeaderMap) -> Option<&HeaderName> {
    headers.keys().find(|name| {
        let matters = *name == AUTHORIZATION
            || *name == LEASE_HEADER
            || *name == PROFILE_HEADER
            || FORWARDED_HEADERS.contains(name)
            || name.as_str().starts_with(MCP_HEADER_PREFIX);
        // Several `Accept` headers form one list.
        matters && **name != ACCEPT && headers.get_all(*name).iter().count() > 1
    })
}

/// Returns the memory profile that a request names (G12).
pub(super) fn memory_profile(headers: &HeaderMap) -> Result<Option<MemoryProfile>, InvalidProfile> {
    let named = headers.get(PROFILE_HEADER).map(|value| value.to_str().map_err(|_| InvalidProfile));
    named.transpose()?.map(str::parse).transpose()
}

/// Removes the headers that are not forwarded to rmcp.
pub(super) fn with_forwarded_headers(mut parts: Parts) -> Parts {
    let mut headers = HeaderMap::new();
    for (name, value) in &parts.headers {
        let text = name.as_str();
        let is_mcp = text.starts_with(MCP_HEADER_PREFIX) && !DROPPED_MCP_HEADERS.contains(&text);
        if is_mcp || FORWARDED_HEADERS.contains(name) {
            headers.append(name, value.clone());
        }
    }
    parts.headers = headers;
    parts
}
