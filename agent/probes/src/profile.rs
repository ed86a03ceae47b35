//! The event of profiles, and the program that copies a main thread's registers and stack at each event.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use aya::Ebpf;
use aya::maps::{Map, MapData, RingBuf};
use aya::programs::PerfEvent;
use aya_obj::generated::perf_event_attr;
use aya_obj::generated::perf_sw_ids::PERF_COUNT_SW_CPU_CLOCK;
use aya_obj::generated::perf_type_id::PERF_TYPE_SOFTWARE;
use evictscope_abi::{
    MAX_PROFILES, ProfileCounts, ProfileSample, SAVED_REGISTERS, SAVED_STACK_POINTER, STACK_PAGE, STACK_PAGES,
    profile_slot,
};
use parking_lot::Mutex;

use super::bpf::{link_perf_event, perf_event, take_record};
use super::error::ProbeError;
use super::maps::Mapped;
use super::programs::load;

const PROGRAM: &str = "profile_sample";

/// What an event costs the thread besides the program, nanoseconds: the interrupt, and setting the timer again. The
/// program cannot measure it, so this is an allowance.
const INTERRUPT_NS: u64 = 10_000;

/// The loaded program, and the profiles that are being taken. Clones share it.
#[derive(Clone)]
pub struct Sampler(Arc<Shared>);

struct Shared {
    /// Keeps the program and its maps.
    ebpf: Ebpf,
    counts: Mapped<ProfileCounts>,
    samples: Mutex<RingBuf<MapData>>,
    cookies: Mutex<Cookies>,
}

/// Which entries of the map are in use, by cookie.
struct Cookies {
    used: Vec<u64>,
    next: u64,
}

/// A main thread that is being sampled. Dropping it ends the sampling and gives up its counts.
pub struct Sampling {
    sampler: Sampler,
    cookie: u64,
    /// The link that attaches the program to the event, and the event.
    attached: Option<(OwnedFd, OwnedFd)>,
}

/// A copy of registers and stack.
#[derive(Clone, Copy)]
pub struct StackSample<'a> {
    /// Which profile it belongs to: [`Sampling::cookie`].
    pub cookie: u64,
    /// When it was taken, by the monotonic clock.
    pub at: Duration,
    /// The registers where the thread's own code was interrupted, as the kernel orders them.
    pub registers: &'a [u64; SAVED_REGISTERS],
    /// The stack from the beginning of the page that the stack pointer is in.
    stack: &'a [u8],
}

impl StackSample<'_> {
    /// Returns the 8 bytes of the stack at an address, if they were copied.
    pub fn word(&self, address: u64) -> Option<u64> {
        let page = STACK_PAGE as u64;
        let begin = self.registers[SAVED_STACK_POINTER] / page * page;
        let offset = usize::try_from(address.checked_sub(begin)?).ok()?;
        Some(u64::from_ne_bytes(*self.stack.get(offset..)?.first_chunk()?))
    }
}

impl Sampler {
    /// Loads the program into the kernel. Fails if the kernel does not allow it or refuses the program.
    pub fn load() -> Result<Self, ProbeError> {
        let object = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/evictscope-profile"));
        let mut ebpf = load(object)?;
        let counts = Mapped::of(ebpf.map("PROFILES").ok_or(ProbeError::Object("PROFILES"))?, MAX_PROFILES)?;
        let samples: Map = ebpf.take_map("SAMPLES").ok_or(ProbeError::Object("SAMPLES"))?;
        let unusable = |_| ProbeError::Object("map of another kind");
        let program: &mut PerfEvent =
            ebpf.program_mut(PROGRAM).ok_or(ProbeError::Object(PROGRAM))?.try_into().map_err(ProbeError::program)?;
        program.load().map_err(ProbeError::program)?;
        Ok(Self(Arc::new(Shared {
            ebpf,
            counts,
            samples: Mutex::new(samples.try_into().map_err(unusable)?),
            cookies: Mutex::new(Cookies { used: Vec::new(), next: 0 }),
        })))
    }

    /// Begins to sample the main thread of process `pid`, `hz` times for each second of CPU time. Fails with the
    /// kernel's error: "permission denied" if it does not let this process have the event, "no such process" if that
    /// process has ended; "no room" if too many are sampled.
    pub fn sample(&self, pid: u32, hz: u32) -> io::Result<Sampling> {
        let program = self.0.ebpf.program(PROGRAM);
        let program: &PerfEvent = program.ok_or(io::ErrorKind::NotFound)?.try_into().map_err(io::Error::other)?;
        let program = program.fd().map_err(io::Error::other)?;
        let cookie = self.0.cookies.lock().take().ok_or(io::ErrorKind::StorageFull)?;
        let mut sampling = Sampling { sampler: self.clone(), cookie, attached: None };
        let counts = ProfileCounts { tgid: pid.into(), ..ProfileCounts::default() };
        self.0.counts.set(profile_slot(cookie), counts).map_err(io::Error::other)?;
        let event = cpu_clock(pid, hz)?;
        let link = link_perf_event(program.as_fd(), &event, cookie)?;
        sampling.attached = Some((link, event));
        Ok(sampling)
    }

    /// Calls `each` for each sample taken since the last time, in order, and drops it.
    pub fn drain(&self, mut each: impl FnMut(StackSample<'_>)) {
        let mut samples = self.0.samples.lock();
        while let Some(item) = samples.next() {
            let Some(sample) = take_record::<ProfileSample>(&mut &item[..]) else { continue };
            let copied = usize::try_from(sample.pages).map_or(STACK_PAGES, |pages| pages.min(STACK_PAGES));
            each(StackSample {
                cookie: sample.profile,
                at: Duration::from_nanos(sample.at_ns),
                registers: &sample.registers,
                stack: sample.stack[..copied].as_flattened(),
            });
        }
    }

    /// Returns how many samples were taken so far for the profile with this cookie.
    pub fn taken(&self, cookie: u64) -> u64 {
        self.counts(cookie).samples
    }

    /// Returns what was counted of one profile; nothing if there is no such entry.
    fn counts(&self, cookie: u64) -> ProfileCounts {
        let entry = self.0.counts.entry(profile_slot(cookie));
        // SAFETY: a valid entry, all integers, which the program writes whole.
        entry.map_or_else(|_| ProfileCounts::default(), |entry| unsafe { entry.read_volatile() })
    }
}

/// Opens the event: a timer of the CPU time of one thread.
fn cpu_clock(tid: u32, hz: u32) -> io::Result<OwnedFd> {
    let fill = |attr: &mut perf_event_attr| {
        attr.type_ = PERF_TYPE_SOFTWARE as u32;
        attr.config = PERF_COUNT_SW_CPU_CLOCK as u64;
        attr.set_freq(1);
        attr.__bindgen_anon_1.sample_freq = hz.into();
    };
    // SAFETY: it sets no pointers.
    unsafe { perf_event(tid, fill) }
}

impl Cookies {
    /// Returns a cookie that was never used, and whose entry is free; `None` if all are in use.
    fn take(&mut self) -> Option<u64> {
        let is_free = |cookie: &u64| self.used.iter().all(|used| profile_slot(*used) != profile_slot(*cookie));
        let cookie = (self.next..).take(MAX_PROFILES as usize).find(is_free)?;
        self.next = cookie + 1;
        self.used.push(cookie);
        Some(cookie)
    }
}

impl Sampling {
    pub fn cookie(&self) -> u64 {
        self.cookie
    }

    pub fn stop(&mut self) {
        self.attached = None;
    }

    /// Returns what was counted so far, with all that the samples cost the thread.
    pub fn counts(&self) -> ProfileCounts {
        let counts = self.sampler.counts(self.cookie);
        let events = counts.samples + counts.lost + counts.foreign;
        ProfileCounts { spent_ns: counts.spent_ns + events * INTERRUPT_NS, ..counts }
    }
}

impl Drop for Sampling {
    fn drop(&mut self) {
        self.stop();
        self.sampler.0.cookies.lock().used.retain(|used| *used != self.cookie);
    }
}
