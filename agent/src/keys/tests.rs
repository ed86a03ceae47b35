//! Walks through memory in which they would not end.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use evictscope_model::{FileAddress, Member};
use evictscope_plan::{Identity, MemberPlan, Method, ProbePlan};

use super::databases::Databases;
use super::{ExpiredSampler, KeysArguments, Memory, Walk, sampler};

/// A table of 7 words: its two arrays of places, how many entries each is said to have, and the exponents of their
/// sizes.
pub fn dict(places: u64, used: u64, exponent: u8) -> &'static [u64; 7] {
    let exponents = u64::from_ne_bytes([0, 0, exponent, 255, 0, 0, 0, 0]);
    Box::leak(Box::new([1, places, 0, used, 0, u64::MAX, exponents]))
}

pub fn at<T>(words: &[T]) -> u64 {
    words.as_ptr() as u64
}

/// Returns the plan of a server of this version so many of whose words lead to `first`.
fn liar(version: &str, first: u64, words: usize) -> ProbePlan {
    let server = vec![0; 300].leak();
    server[100..100 + words].fill(first);
    let member = MemberPlan {
        member: Member::StatNumcommands,
        address: FileAddress::new(at(&server[100..])),
        offset: None,
        method: Method::Dataflow,
        counters: None,
    };
    ProbePlan {
        identity: Identity { product: Some("redis"), version: Some(version.to_owned()), ..Identity::default() },
        functions: Vec::new(),
        members: vec![member],
        commands: None,
        not_found: Vec::new(),
    }
}

/// Returns the databases of a server that has one, with these tables of keys and of times to live.
fn found(memory: &Memory, keys: u64, expires: u64) -> anyhow::Result<Databases> {
    let none = at(dict(0, 0, 255));
    let mut databases = vec![0; 20];
    databases[..5].copy_from_slice(&[keys, expires, none, none, none]);
    Databases::find(memory, &liar("7.0.15", at(databases.leak()), 1), 0)
}

/// Returns what something returns that must end. Its own limits are seconds, on a machine that does nothing else.
fn ends<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> anyhow::Result<T> {
    let (done, end) = channel();
    std::thread::spawn(move || done.send(what()));
    Ok(end.recv_timeout(Duration::from_secs(60))?)
}

/// Each walk stops to find anything: the list of all of them.
#[test]
fn every_walk_has_a_limit_of_steps_and_of_time() -> anyhow::Result<()> {
    let short = Duration::from_millis(20);
    for walk in [Walk::Reading, Walk::Tables, Walk::Expired, Walk::Allocator(short), Walk::Draw(short)] {
        let begun = Instant::now();
        let memory = Memory::open(std::process::id(), walk)?;
        let word = &raw const short as u64;
        let (steps, time) = walk.limit();
        let read = std::iter::from_fn(|| memory.u64(word)).count() as u64;
        assert!(read == steps || begun.elapsed() >= time, "{walk:?}");
        let memory = memory.another(walk);
        let mut much = vec![0; 64 * steps.min(1 << 24) as usize];
        assert!(memory.fill(word, &mut much).is_none() && memory.u64(word).is_some() != memory.is_spent(), "{walk:?}");
    }
    Ok(())
}

#[test]
fn a_server_of_16_384_databases_with_16_384_tables_each_is_given_up() -> anyhow::Result<()> {
    let none = at(dict(0, 0, 255));
    let store = vec![0; 18].leak();
    (store[16], store[17]) = (at(vec![0_u64; 16_384].leak()), 16_384);
    let store = at(store);
    let databases = (0..16_384).flat_map(|number| [store, store, 0, none, none, none, none, number, 0, 0, 0]);
    let plan = liar("7.4.1", at(databases.collect::<Vec<u64>>().leak()), 100);
    let memory = Memory::of_this_process()?;
    let found = ends(move || {
        let found = Databases::find(&memory, &plan, 0).map(drop);
        let memory = memory.another(Walk::Expired);
        [found, ExpiredSampler::default().sample(&memory, &plan, 0).map(drop)]
    })?;
    for found in found {
        let why = found.err().map(|error| error.to_string());
        assert!(why.as_ref().is_some_and(|why| why.contains("longer")), "{why:?}");
    }
    Ok(())
}

#[test]
fn chains_that_were_made_for_it_do_not_keep_a_sampler_beyond_its_time() -> anyhow::Result<()> {
    // Nearly a thousand entries at each place, and as many others at each of 64 places where their times to live would
    // be.
    let chain = |key: u64, value: u64| {
        let before = |next, _| at(Box::leak(Box::new([key, value, next])));
        (0..999).fold(0, before)
    };
    let table = |entries, exponent: u8| at(dict(at(vec![entries; 1 << exponent].leak()), 999 << exponent, exponent));
    // A string of one letter, and a number.
    let key = at(Box::leak(Box::new([8, b'a', 0]))) + 1;
    let value = at(Box::leak(Box::new([1_u64 << 32 | 1 << 4, 7])));
    let memory = Memory::of_this_process()?;
    let databases = found(&memory, table(chain(key, value), 6), table(chain(value, value), 12))?;
    let arguments = KeysArguments {
        pid: std::process::id(),
        samples: 100,
        seconds: Duration::from_millis(400),
        by: None,
        json: false,
    };
    let drawn = ends(move || sampler::draw(&memory, &databases, &arguments, 0))?;
    match drawn.map_err(|error| error.to_string()) {
        Ok(drawn) => assert_eq!(drawn.all, [999 << 6; 2]),
        Err(why) => assert!(why.contains("allow more --seconds"), "{why}"),
    }
    Ok(())
}

#[test]
fn tables_are_read_when_the_time_of_a_drawing_runs_out() -> anyhow::Result<()> {
    let table = at(dict(at(vec![0_u64; 1 << 12].leak()), 1, 12));
    let memory = Memory::of_this_process()?;
    let databases = found(&memory, table, table)?;
    let spent = memory.another(Walk::Draw(Duration::ZERO));
    assert!(spent.is_spent() && sampler::read(&spent, &databases).is_ok());
    Ok(())
}
