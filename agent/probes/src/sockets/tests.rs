//! Tests what is seen of real servers that are stopped, so that what lies unread is known.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use evictscope_telemetry::{Owed, PeerAddress, SocketLook, Unread};
use evictscope_testkit::process::Owned;
use evictscope_testkit::redis::Redis;
use evictscope_testkit::skip::skip;
use evictscope_testkit::wait::until;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{AddressFamily, SocketType, bind, ipproto, listen, socket};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::records::Ticks;
use super::{Ports, SocketIterator};

const PING: &[u8] = b"PING\r\n";
const PONG: &[u8] = b"+PONG\r\n";

trait Connection: Read + Write {}
impl<T: Read + Write> Connection for T {}

/// Starts a server, and loads what looks at it. Returns also its pid.
fn started(options: &[&str]) -> Result<(SocketIterator, Redis, u32)> {
    let (iterator, redis) = (SocketIterator::load(true)?, Redis::start(options)?);
    let pid = redis.pid();
    Ok((iterator, redis, pid))
}

fn tcp(redis: &Redis) -> Result<TcpStream> {
    Ok(TcpStream::connect(("127.0.0.1", redis.port()))?)
}

/// Connects clients, whose connections the server has accepted when this returns.
fn connect(redis: &Redis, count: usize) -> Result<Vec<TcpStream>> {
    let mut clients = (0..count).map(|_| tcp(redis)).collect::<Result<Vec<_>>>()?;
    for client in &mut clients {
        ask(client, PING, PONG)?;
    }
    Ok(clients)
}

fn look_at(iterator: &SocketIterator, pid: u32) -> io::Result<SocketLook> {
    iterator.look(pid, &mut Ports::default())
}

/// Returns when the answer is there, so that the server has accepted the connection and read everything.
fn ask(connection: &mut dyn Connection, request: &[u8], answer: &[u8]) -> Result<()> {
    connection.write_all(request)?;
    let mut given = vec![0; answer.len()];
    connection.read_exact(&mut given)?;
    ensure!(given == answer, "{}", String::from_utf8_lossy(&given));
    Ok(())
}

fn signal(pid: u32, signal: Signal) -> Result<()> {
    let pid = Pid::from_raw(i32::try_from(pid)?).context("no pid")?;
    Ok(kill_process(pid, signal)?)
}

/// Stops a server once it has `connected` connections, having closed those of programs that have ended.
/// Returns when it has stopped.
fn stop(iterator: &SocketIterator, pid: u32, connected: usize) -> Result<()> {
    until("the server has closed all other connections", || {
        Ok((look_at(iterator, pid)?.connected as usize == connected).then_some(()))
    })?;
    signal(pid, Signal::STOP)?;
    until("the server stops", || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
        Ok((state == Some('T')).then_some(()))
    })
}

/// Waits until `count` connections have bytes unread, and returns the look.
fn unread(iterator: &SocketIterator, pid: u32, count: usize) -> Result<SocketLook> {
    until("as many have bytes unread", || {
        let look = look_at(iterator, pid)?;
        Ok((look.unread.len() == count).then_some(look))
    })
}

fn ip(address: impl Into<IpAddr>) -> PeerAddress {
    PeerAddress::Ip(address.into())
}

fn peers(look: &SocketLook) -> BTreeMap<PeerAddress, u32> {
    look.peers.iter().flat_map(|peers| peers.connections.clone()).collect()
}

fn bytes(look: &SocketLook) -> Vec<u32> {
    let mut bytes: Vec<_> = look.unread.iter().map(|unread| unread.bytes).collect();
    bytes.sort_unstable();
    bytes
}

/// Makes connections of every kind, and lets every second one send a different number of bytes.
#[test]
#[ignore = "needs root and BPF"]
fn those_that_sent_and_no_others_are_seen() -> Result<()> {
    let has_ipv6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
    if !has_ipv6 {
        skip("this host has no IPv6")?;
    }
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("socket");
    let path = socket.to_str().context("an odd path")?;
    let bind: &[&str] = if has_ipv6 { &["127.0.0.1", "::1"] } else { &["127.0.0.1"] };
    let (iterator, redis, pid) = started(&[&["--unixsocket", path, "--bind"], bind].concat())?;
    let mut clients: Vec<Box<dyn Connection>> = Vec::new();
    for _ in 0..6 {
        clients.push(Box::new(tcp(&redis)?));
        clients.push(Box::new(UnixStream::connect(path)?));
        if has_ipv6 {
            clients.push(Box::new(TcpStream::connect((Ipv6Addr::LOCALHOST, redis.port()))?));
        }
    }
    for client in &mut clients {
        ask(client, PING, PONG)?;
    }
    let connected = u32::try_from(clients.len())?;
    let mut before: Vec<Unread> = Vec::new();
    for round in 0..2 {
        stop(&iterator, pid, clients.len())?;
        let look = look_at(&iterator, pid)?;
        assert_eq!((look.connected, look.unread.len()), (connected, 0));

        let begun = Ticks::now();
        let mut sent = Vec::new();
        for (index, client) in clients.iter_mut().enumerate().step_by(2) {
            client.write_all(&PING.repeat(index + 1))?;
            sent.push(u32::try_from(PING.len() * (index + 1))?);
        }
        let ended = Ticks::now();
        let look = unread(&iterator, pid, sent.len())?;
        assert_eq!(look.connected, connected);
        assert_eq!(bytes(&look), sent);
        let (each, own) = (6, PeerAddress::Process(std::process::id()));
        let mut expected = BTreeMap::from([(ip([127, 0, 0, 1]), each), (own, each)]);
        expected.extend(has_ipv6.then_some((ip(Ipv6Addr::LOCALHOST), each)));
        assert_eq!(peers(&look), expected);
        assert!(look.at >= ended.last, "{look:?}");
        let came = look.unread.iter().filter_map(|unread| unread.came);
        assert_eq!(came.clone().count(), 6);
        for came in came {
            assert!(is_between(came, begun, ended), "round {round}: {begun:?} to {ended:?}: {came:?}");
        }
        for tcp in look.unread.iter().filter(|unread| unread.came.is_some()) {
            // What it sent before was read.
            if let Some(same) = before.iter().find(|other| other.socket == tcp.socket) {
                assert_eq!(tcp.read_to, same.read_to.wrapping_add(same.bytes));
            }
        }
        before = look.unread;

        signal(pid, Signal::CONT)?;
        let look = unread(&iterator, pid, 0)?;
        assert_eq!(look.connected, connected);
        for (index, client) in clients.iter_mut().enumerate().step_by(2) {
            ask(client, b"", &PONG.repeat(index + 1))?;
        }
    }
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn a_client_that_ended_before_it_was_answered_gave_up() -> Result<()> {
    let (iterator, redis, pid) = started(&[])?;
    let clients = <[TcpStream; 5]>::try_from(connect(&redis, 5)?);
    let [mut half, silent, mut closed, mut reset, _open] = clients.map_err(|_| anyhow!("not five"))?;
    stop(&iterator, pid, 5)?;
    reset.write_all(PING)?;
    set_socket_linger(&reset, Some(Duration::ZERO))?;
    drop(reset);
    silent.shutdown(Shutdown::Write)?;
    closed.write_all(&PING.repeat(2))?;
    drop(closed);
    half.write_all(PING)?;
    half.shutdown(Shutdown::Write)?;
    let look = until("three gave up, and all that closed are known to", || {
        let look = look_at(&iterator, pid)?;
        let states = fs::read_to_string(format!("/proc/{pid}/net/tcp"))?;
        let port = format!(":{:04X} ", redis.port());
        // The server's own ends, whose port comes first. CLOSE_WAIT is 08.
        let ended = states.lines().filter(|line| {
            let mut words = line.split_whitespace().skip(1);
            let is_servers = words.next().is_some_and(|address| format!("{address} ").ends_with(&port));
            is_servers && words.nth(1) == Some("08")
        });
        let certain = look.gave_up.iter().filter(|gave_up| gave_up.is_certain);
        Ok((certain.count() == 3 && ended.count() == 3).then_some(look))
    })?;
    assert_eq!((look.connected, look.unread), (1, Vec::new()));
    signal(pid, Signal::CONT)?;
    ask(&mut half, b"", PONG)?;
    until("only the last one is left", || Ok((look_at(&iterator, pid)?.connected == 1).then_some(())))?;
    assert_eq!(look_at(&iterator, pid)?.unread, []);
    Ok(())
}

/// Clients that connect for each request wait to be accepted while the server does something else.
#[test]
#[ignore = "needs root and BPF"]
fn those_that_were_not_accepted_are_seen() -> Result<()> {
    const MANY: usize = 300;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("socket");
    let (iterator, redis, pid) = started(&["--unixsocket", path.to_str().context("an odd path")?])?;
    let _first = connect(&redis, 1)?;
    stop(&iterator, pid, 1)?;
    // A port scanner's stays the first of the list.
    let reset = tcp(&redis)?;
    set_socket_linger(&reset, Some(Duration::ZERO))?;
    drop(reset);
    let mut local = UnixStream::connect(&path)?;
    local.write_all(PING)?;
    let look = unread(&iterator, pid, 1)?;
    assert_eq!((look.connected, look.unread[0].came), (2, None));
    drop(local);
    let gave_up = look_at(&iterator, pid)?.gave_up;
    assert_eq!(gave_up.len(), 1, "{gave_up:?}");

    let mut clients = (0..MANY).map(|_| tcp(&redis)).collect::<Result<Vec<_>>>()?;
    let _silent = tcp(&redis)?;
    let begun = Ticks::now();
    for client in &mut clients {
        client.write_all(PING)?;
    }
    let ended = Ticks::now();
    let look = unread(&iterator, pid, MANY)?;
    assert_eq!((look.connected as usize, bytes(&look)), (MANY + 2, vec![6; MANY]));
    let before: BTreeSet<_> = look.unread.iter().map(|unread| unread.socket).collect();
    assert_eq!(before.len(), MANY);
    let known = peers(&look);
    for unread in look.unread {
        let came = unread.came.context("when it came is not known")?;
        assert!(is_between(came, begun, ended), "{begun:?} to {ended:?}: {came:?}");
    }
    assert_eq!(known, [(ip([127, 0, 0, 1]), u32::try_from(MANY + 2)?)].into());
    signal(pid, Signal::CONT)?;
    for client in &mut clients {
        ask(client, b"", PONG)?;
    }
    // They are the same sockets once accepted.
    stop(&iterator, pid, MANY + 2)?;
    for client in &mut clients {
        client.write_all(PING)?;
    }
    let look = unread(&iterator, pid, MANY)?;
    let after: BTreeSet<_> = look.unread.iter().map(|unread| unread.socket).collect();
    assert_eq!((look.connected as usize, after), (MANY + 2, before));
    Ok(())
}

/// Returns whether `came` is between these ticks, to within a tick. Ticks are counted back from now, and NTP makes them
/// longer or shorter by up to a 2,000th (`MAXFREQ`, include/linux/timex.h).
fn is_between(came: Duration, begun: Ticks, ended: Ticks) -> bool {
    let off = begun.length + (Ticks::now().last - begun.last) / 2000;
    came + off >= begun.last && came <= ended.last + off
}

#[test]
#[ignore = "needs root and BPF"]
fn blocked_clients_do_not_wait() -> Result<()> {
    let (iterator, redis, pid) = started(&[])?;
    let mut clients = connect(&redis, 3)?;
    let [popping, subscribed, monitor] = &mut clients[..] else { bail!("not three") };
    popping.write_all(b"BLPOP nothing 0\r\n")?;
    subscribed.write_all(b"SUBSCRIBE news\r\n")?;
    ask(monitor, b"MONITOR\r\n", b"+OK\r\n")?;
    until("the clients are blocked", || {
        Ok((redis.info("blocked_clients")? == 1.0 && redis.info("pubsub_channels")? == 1.0).then_some(()))
    })?;
    stop(&iterator, pid, clients.len())?;
    let look = look_at(&iterator, pid)?;
    assert_eq!((look.connected, look.unread), (3, Vec::new()));
    assert_eq!(look.owed.len(), 1, "the one that pops: {:?}", look.owed);
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn who_is_owed_an_answer_is_seen() -> Result<()> {
    const SET: &[u8] = b"SET key value\r\n";
    const OK: &[u8] = b"+OK\r\n";
    let (iterator, redis, pid) = started(&[])?;
    let mut clients = [tcp(&redis)?, tcp(&redis)?, tcp(&redis)?, tcp(&redis)?];
    let [admin, first, second, _silent] = &mut clients;
    for round in 0..3 {
        for client in [&mut *first, &mut *second] {
            ask(client, SET, OK)?;
        }
        ask(admin, b"CLIENT PAUSE 1000000 WRITE\r\n", OK)?;
        let begun = Ticks::now();
        first.write_all(SET)?;
        second.write_all(&SET.repeat(3))?;
        let ended = Ticks::now();
        let owed = until("the server has read what two have sent", || {
            let look = look_at(&iterator, pid)?;
            Ok((look.unread.is_empty() && look.owed.len() == 2).then_some(look.owed))
        })?;
        for Owed { came, .. } in owed {
            assert!(is_between(came, begun, ended), "round {round}: {begun:?} to {ended:?}: {came:?}");
        }
        ask(admin, b"CLIENT UNPAUSE\r\n", OK)?;
        ask(first, b"", OK)?;
        ask(second, b"", &OK.repeat(3))?;
        until("nobody is owed an answer", || {
            let look = look_at(&iterator, pid)?;
            Ok((look.connected == 4 && look.owed.is_empty()).then_some(()))
        })?;
    }
    Ok(())
}

/// The client's kernel acknowledges each probe of the keepalive, which is no answer.
#[test]
#[ignore = "needs root and BPF"]
fn a_keepalive_is_no_answer() -> Result<()> {
    let (iterator, redis, pid) = started(&["--tcp-keepalive", "1", "--enable-debug-command", "yes"])?;
    let [mut first, mut second] = [tcp(&redis)?, tcp(&redis)?];
    // The next request comes in the tick of the answer to the one before.
    ask(&mut first, PING, PONG)?;
    first.write_all(b"DEBUG SLEEP 4\r\n")?;
    let owed = until("the server sleeps", || {
        let look = look_at(&iterator, pid)?;
        Ok(look.owed.first().copied())
    })?;
    second.write_all(PING)?;
    let mut uncertain = 0;
    let (mut waited, mut answered) = (Duration::ZERO, Vec::new());
    while answered.is_empty() {
        let look = look_at(&iterator, pid)?;
        answered = look.answered;
        let same = look.owed.iter().find(|other| other.socket == owed.socket);
        ensure!(same.is_some() || !answered.is_empty(), "an answer after {waited:?}");
        waited = look.at.saturating_sub(owed.came);
        uncertain += u32::from(same.is_some_and(|same| !same.is_certain));
        thread::sleep(Duration::from_millis(10));
    }
    println!("{uncertain} looks were not certain");
    let least = Duration::from_millis(3_900);
    ensure!(answered[0].left - answered[0].came > least, "{answered:?}");
    ask(&mut second, b"", PONG)
}

/// A connection that the server has made itself is no client's.
#[test]
#[ignore = "needs root and BPF"]
fn links_between_servers_are_no_clients() -> Result<()> {
    let iterator = SocketIterator::load(true)?;
    let primary = Redis::start(&[])?;
    let port = primary.port().to_string();
    let replica = Redis::start(&["--replicaof", "127.0.0.1", &port])?;
    until("they are connected", || Ok((primary.info("connected_slaves")? == 1.0).then_some(())))?;
    let connected = |redis: &Redis| anyhow::Ok(look_at(&iterator, redis.pid())?.connected);
    until("no other client", || Ok((connected(&primary)? == 1 && connected(&replica)? == 0).then_some(())))
}

#[test]
#[ignore = "needs root and BPF"]
fn a_server_in_another_network_namespace_is_seen() -> Result<()> {
    let iterator = SocketIterator::load(true)?;
    let server = "ip link set lo up && exec redis-server --port 6379 --bind 127.0.0.1 --save ''";
    let folder = tempfile::tempdir()?;
    let server = Owned::start(Command::new("unshare").args(["--net", "sh", "-c", server]).current_dir(folder.path()))?;
    let pid = server.pid();
    // Only this thread, which ends, enters the namespace.
    let connect = || {
        let namespace = File::open(format!("/proc/{pid}/ns/net"))?;
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        TcpStream::connect(("127.0.0.1", 6379))
    };
    let mut client = server.until("redis-server answers", || {
        let connected = thread::scope(|scope| scope.spawn(connect).join());
        let Ok(mut client) = connected.map_err(|_| anyhow!("a thread panicked"))? else { return Ok(None) };
        Ok(ask(&mut client, PING, PONG).ok().map(|()| client))
    })?;
    assert_ne!(fs::read_link("/proc/self/ns/net")?, fs::read_link(format!("/proc/{pid}/ns/net"))?);
    stop(&iterator, pid, 1)?;
    client.write_all(PING)?;
    let look = unread(&iterator, pid, 1)?;
    assert_eq!((look.connected, bytes(&look)), (1, vec![6]));
    assert_eq!(peers(&look), [(ip([127, 0, 0, 1]), 1)].into());
    Ok(())
}

/// This process is server and client.
#[test]
#[ignore = "needs root and BPF"]
fn peers_of_mptcp_are_known_and_what_they_do_not_take() -> Result<()> {
    let Ok(listening) = socket(AddressFamily::INET, SocketType::STREAM, Some(ipproto::MPTCP)) else {
        return skip("this kernel has no MPTCP");
    };
    let iterator = SocketIterator::load(true)?;
    let look = || look_at(&iterator, std::process::id());
    bind(&listening, &SocketAddr::from(([127, 0, 0, 1], 0)))?;
    listen(&listening, 5)?;
    let client = socket(AddressFamily::INET, SocketType::STREAM, Some(ipproto::MPTCP))?;
    bind(&client, &SocketAddr::from(([127, 0, 0, 4], 0)))?;
    let server = TcpListener::from(listening);
    rustix::net::connect(&client, &server.local_addr()?)?;
    let mut client = TcpStream::from(client);
    client.write_all(PING)?;
    let expected = BTreeMap::from([(ip([127, 0, 0, 4]), 1)]);
    let pending = until("it is seen before it is accepted", || {
        let look = look()?;
        Ok((look.unread.len() == 1).then_some(look))
    })?;
    assert_eq!((peers(&pending), bytes(&pending)), (expected.clone(), vec![6]));
    let (mut connection, _) = server.accept()?;
    connection.read_exact(&mut [0; 6])?;
    connection.set_nonblocking(true)?;
    while connection.write(&[0; 1 << 16]).is_ok() {}
    let full = until("it takes nothing", || {
        let look = look()?;
        let active = look.peers.as_ref().and_then(|peers| peers.active.first().copied());
        Ok(active.filter(|active| active.untaken > 0).map(|active| (look, active)))
    })?;
    assert_eq!((peers(&full.0), full.1.address), (expected, ip([127, 0, 0, 4])));
    println!("{:?}", full.1);
    Ok(())
}

/// Tests more connections than the kernel gives at once, looked at by several threads.
#[test]
#[ignore = "needs root and BPF"]
fn of_many_connections_each_is_seen_once() -> Result<()> {
    const MANY: u32 = 1_500;
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    let (iterator, redis, pid) = started(&["--maxclients", "2000"])?;
    let mut clients = connect(&redis, MANY as usize)?;
    stop(&iterator, pid, clients.len())?;
    for (index, client) in clients.iter_mut().enumerate() {
        // Idle ones in between, so that records of both lengths meet the end of the buffer.
        if index % 10 != 0 {
            client.write_all(PING)?;
        }
    }
    let waiting = MANY as usize * 9 / 10;
    let look = unread(&iterator, pid, waiting)?;
    assert_eq!(look.connected, MANY);
    let sockets: BTreeSet<_> = look.unread.iter().map(|unread| unread.socket).collect();
    assert_eq!(sockets.len(), waiting);
    thread::scope(|scope| {
        let looks = || (0..20).map(|_| look_at(&iterator, pid)).collect::<Vec<_>>();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(looks)).collect();
        for thread in threads {
            for other in thread.join().map_err(|_| anyhow!("a thread panicked"))? {
                let other = other?;
                assert_eq!(other.connected, MANY);
                let others: BTreeSet<_> = other.unread.iter().map(|unread| unread.socket).collect();
                assert!(other.unread.len() == waiting && others == sockets);
            }
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs root and BPF"]
fn a_process_that_has_ended_is_not_found() -> Result<()> {
    let iterator = SocketIterator::load(true)?;
    let mut child = Command::new("true").spawn()?;
    let pid = child.id();
    until("the process ends", || Ok(child.try_wait()?))?;
    let error = look_at(&iterator, pid).err().context("it was found")?;
    assert_eq!(error.kind(), ErrorKind::NotFound);
    Ok(())
}
