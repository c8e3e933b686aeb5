//! What a job reaches over the network.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};

use sandbox::{Network, Spec, StartError};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net,
    sync::mpsc,
};

use crate::kit::{Kit, Ran, perl, sh};

#[tokio::test]
async fn job_without_network_reaches_neither_host_nor_world() {
    let kit = Kit::bwrap().await;
    let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    tcp.set_nonblocking(true).unwrap();
    udp.set_nonblocking(true).unwrap();
    let (tcp_port, udp_port) = (tcp.local_addr().unwrap().port(), udp.local_addr().unwrap().port());
    let program = format!(
        "use Socket; sub c {{ my ($type, $host, $port) = @_; socket(my $s, AF_INET, $type, 0) or die; \
         print connect($s, pack_sockaddr_in($port, inet_aton($host))) && send($s, 'x', 0) \
         ? 'sent ' : $! + 0, ' ' }} \
         c(SOCK_STREAM, '127.0.0.1', {tcp_port}); c(SOCK_STREAM, '1.1.1.1', 443); \
         c(SOCK_DGRAM, '8.8.8.8', 53); \
         c(SOCK_DGRAM, '127.0.0.1', {udp_port}); print gethostbyname('example.org') ? 'resolved' : 'none'"
    );
    let ran = kit.run(perl(&program)).await;
    let (refused, unreachable) = (libc::ECONNREFUSED, libc::ENETUNREACH);
    // What is sent to the loopback interface of the sandbox goes nowhere.
    assert_eq!(ran.succeeded(), format!("{refused} {unreachable} {unreachable} sent  none"));
    assert!(tcp.accept().is_err() && udp.recv(&mut [0]).is_err());
    kit.remove(ran).await;
}

/// Serves one HTTP answer per connection on the host's loopback interface.
async fn serve(listener: net::TcpListener) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 4096];
        let read = stream.read(&mut request).await.unwrap();
        let head = String::from_utf8_lossy(&request[..read]).lines().next().unwrap_or_default().to_owned();
        let answer = format!("HTTP/1.0 200 OK\r\n\r\nserved {head}\n");
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
}

/// Describes a job that sends these requests to its proxy, each on a connection of its own, and prints the
/// first and the last line of each answer.
fn asking(requests: &[String]) -> Spec {
    let quoted: Vec<_> = requests.iter().map(|it| format!("ask(\"{it}\\r\\n\\r\\n\");")).collect();
    perl(&format!(
        "use Socket; $SIG{{PIPE}} = 'IGNORE'; \
         sub ask {{ socket(my $s, AF_INET, SOCK_STREAM, 0) or die; \
         connect($s, pack_sockaddr_in(3128, inet_aton('127.0.0.1'))) or die $!; my $o = select($s); \
         $| = 1; select($o); print $s $_[0]; my @l = <$s>; print $l[0] =~ s/\\r\\n//r, ' ', $l[-1] }} {}",
        quoted.join(" ")
    ))
}

/// Runs a job with a list of hosts on a node with these internal hosts, beside a server on the host's
/// loopback interface.
async fn run_beside(
    listener: net::TcpListener,
    spec: Spec,
    hosts: &[String],
    internal: &[String],
) -> (Kit, Ran) {
    let internal = internal.iter().map(|it| it.parse().unwrap()).collect();
    let kit = Kit::bwrap_with(|settings| settings.internal_hosts = internal).await;
    let spec = Spec { network: Network::Hosts(hosts.to_vec()), ..spec };
    let ran = tokio::select! {
        ran = kit.run(spec) => ran,
        () = serve(listener) => unreachable!(),
    };
    (kit, ran)
}

async fn listen() -> (net::TcpListener, u16) {
    let listener = net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

#[tokio::test]
async fn job_reaches_the_hosts_that_it_may_through_the_proxy() {
    let (listener, port) = listen().await;
    let spec = asking(&[
        format!("GET http://127.0.0.1:{port}/a HTTP/1.1\\r\\nHost: x"),
        format!("CONNECT 127.0.0.1:{port} HTTP/1.1\\r\\n\\r\\nGET /b HTTP/1.1"),
        format!("CONNECT localhost:{port} HTTP/1.1"),
        format!("CONNECT 127.0.0.2:{port} HTTP/1.1"),
        "CONNECT 127.0.0.1:1 HTTP/1.1".to_owned(),
        format!("CONNECT 127.1:{port} HTTP/1.1"),
        "GET / HTTP/1.1".to_owned(),
    ]);
    // The node allows more than the job names; `localhost` is on the job's list with another port.
    let hosts = [format!("127.0.0.1:{port}"), format!("localhost:{}", port ^ 1)];
    let internal = [format!("127.0.0.1:{port}"), format!("127.0.0.2:{port}"), "127.0.0.1:1".to_owned()];
    let (kit, ran) = run_beside(listener, spec, &hosts, &internal).await;
    let expected = "HTTP/1.0 200 OK served GET /a HTTP/1.1\n\
                    HTTP/1.1 200 Connection established served GET /b HTTP/1.1\n\
                    HTTP/1.1 403 Forbidden the host is not on the job's list\n\
                    HTTP/1.1 403 Forbidden the host is not on the job's list\n\
                    HTTP/1.1 403 Forbidden the host is not on the job's list\n\
                    HTTP/1.1 400 Bad Request the host is invalid: resolvers may take this number for an IPv4 \
                    address; write an address as four decimal numbers, as in `192.0.2.7`\n\
                    HTTP/1.1 400 Bad Request only CONNECT and http:// are proxied\n";
    assert_eq!(ran.succeeded(), expected);
    let refused = ran.running.refused_connections();
    assert_eq!(refused.len(), 3, "{refused:?}");
    kit.remove(ran).await;
}

#[tokio::test]
async fn job_with_hosts_is_told_of_its_proxy() {
    let kit = Kit::bwrap().await;
    let mut spec = sh("echo $http_proxy $https_proxy");
    spec.network = Network::Hosts(vec!["example.org".into()]);
    let ran = kit.run(spec).await;
    assert_eq!(ran.succeeded(), "http://127.0.0.1:3128 http://127.0.0.1:3128\n");
    assert!(ran.running.refused_connections().is_empty());
    kit.remove(ran).await;
}

#[tokio::test]
async fn internal_host_is_refused_although_the_job_lists_it() {
    let (listener, port) = listen().await;
    let names = ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "169.254.169.254"];
    let mut hosts: Vec<_> = names.iter().map(|name| format!("{name}:{port}")).collect();
    hosts.push(format!("localhost:{port}"));
    let tunnels = hosts.iter().map(|host| format!("CONNECT {host} HTTP/1.1\\r\\n\\r\\nGET /x HTTP/1.1"));
    let requests = hosts.iter().map(|host| format!("GET http://{host}/x HTTP/1.1"));
    let requests: Vec<_> = tunnels.chain(requests).collect();
    // Neither another port nor the address of a name opens the name, nor the other way round.
    let internal = ["localhost".to_owned(), format!("127.0.0.2:{port}"), format!("127.0.0.1:{}", port ^ 1)];
    let (kit, ran) = run_beside(listener, asking(&requests), &hosts, &internal).await;
    let text = ran.succeeded();
    let (address, name) = (
        "HTTP/1.1 403 Forbidden the host is an internal address, which sandbox.internal_hosts of the node \
         does not name",
        "HTTP/1.1 403 Forbidden the host has only internal addresses, and sandbox.internal_hosts of the node \
         does not name it",
    );
    let expected: Vec<_> = [[address; 5].as_slice(), &[name]].concat();
    assert_eq!(text.lines().collect::<Vec<_>>(), [expected.clone(), expected].concat());
    let refused = ran.running.refused_connections();
    assert_eq!(refused.len(), hosts.len(), "{refused:?}");
    for (host, refused) in hosts.iter().zip(&refused) {
        assert!(refused.starts_with(&format!("connection to {host} refused: ")), "{refused}");
    }
    kit.remove(ran).await;
}

#[tokio::test]
async fn name_with_internal_addresses_is_reached_if_the_node_names_it() {
    let (listener, port) = listen().await;
    let host = format!("localhost:{port}");
    let spec = asking(&[
        format!("CONNECT {host} HTTP/1.1\\r\\n\\r\\nGET /a HTTP/1.1"),
        format!("GET http://127.0.0.1:{port}/b HTTP/1.1"),
    ]);
    let hosts = [host.clone(), format!("127.0.0.1:{port}")];
    let (kit, ran) = run_beside(listener, spec, &hosts, &[host]).await;
    let expected = "HTTP/1.1 200 Connection established served GET /a HTTP/1.1\n\
                    HTTP/1.1 403 Forbidden the host is an internal address, which sandbox.internal_hosts of \
                    the node does not name\n";
    assert_eq!(ran.succeeded(), expected);
    kit.remove(ran).await;
}

#[tokio::test]
async fn job_whose_list_is_invalid_is_not_started() {
    let kit = Kit::bwrap().await;
    for entry in ["*.example.org", "1.2", "0x7f.1"] {
        let mut spec = sh("true");
        spec.network = Network::Hosts(vec![entry.into()]);
        let (sink, _output) = mpsc::channel(1);
        let error = kit.engine.start(spec, sink).await.unwrap_err();
        assert!(matches!(error, StartError::Spec(_)) && error.to_string().contains(entry), "{error}");
    }
}
