// Words exchanged between streams and host: latencies, capture, and how many streams may wait
// before others are blocked.
#include <algorithm>

#include "tools/gpu/driver_facts.hpp"

namespace pith::facts {

using namespace cuda;

namespace {

constexpr std::uint64_t warm_ups = 20;
std::uint64_t rounds() { return over_stub() ? warm_ups + 5 : 200; }

void spin_until(const Words& words, std::size_t index, std::uint64_t value) {
  while (words[index].load(std::memory_order_acquire) < value) {
    if (over_stub()) std::this_thread::yield();
  }
}

void tell(const char* name, const std::vector<double>& us) {
  say(name, "median %.2f us, 99%% %.2f us", median(us), high(us));
}

// Round-trip times: the host writes word 0, the other side answers in word 1.
std::vector<double> trips(const Words& words) {
  std::vector<double> us;
  for (std::uint64_t i = 1; i <= rounds(); ++i) {
    const std::uint64_t begin = now_ns();
    words[0].store(i, std::memory_order_release);
    spin_until(words, 1, i);
    if (i > warm_ups) us.push_back(1e-3 * static_cast<double>(now_ns() - begin));
  }
  return us;
}

// Times from a call to the word that the device writes because of it.
template <class Call>
std::vector<double> from_call(const Words& words, Call call) {
  std::vector<double> us;
  for (std::uint64_t i = 1; i <= rounds(); ++i) {
    const std::uint64_t begin = now_ns();
    must(call(i), "a launch");
    spin_until(words, 1, i);
    if (i > warm_ups) us.push_back(1e-3 * static_cast<double>(now_ns() - begin));
  }
  return us;
}

void tell_waits_and_writes(CUstream stream) {
  const Words words(2);
  for (std::uint64_t i = 1; i <= rounds(); ++i) {
    must(cu().wait_value64(stream, words.at(0), i, kWaitValueGeq), "cuStreamWaitValue64");
    must(cu().write_value64(stream, words.at(1), i, 0), "cuStreamWriteValue64");
  }
  tell("host, wait, write, host", trips(words));
}

void tell_kernels_behind_waits(CUstream stream, const Kernels& kernels) {
  const Words words(2);
  for (std::uint64_t i = 1; i <= rounds(); ++i) {
    must(cu().wait_value64(stream, words.at(0), i, kWaitValueGeq), "cuStreamWaitValue64");
    must(kernels.touch(stream, words.at(1), i), "a kernel");
  }
  tell("host, wait, kernel, host", trips(words));
}

CUgraphExec capture_call(CUstream stream, const Words& words, const Kernels& kernels) {
  must(cu().capture_begin(stream, kCaptureThreadLocal), "cuStreamBeginCapture");
  stage("capturing memory operations");
  say("capturing a write", "%s", describe(cu().write_value64(stream, words.at(0), 1, 0)).c_str());
  say("capturing a wait", "%s",
      describe(cu().wait_value64(stream, words.at(1), 1, kWaitValueGeq)).c_str());
  say("capturing a write behind it", "%s",
      describe(cu().write_value64(stream, words.at(1), 0, 0)).c_str());
  must(kernels.touch(stream, words.at(3), 1), "capturing a kernel");
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  must(cu().capture_end(stream, &graph), "cuStreamEndCapture");
  std::size_t nodes = 0;
  must(cu().graph_nodes(graph, nullptr, &nodes), "cuGraphGetNodes");
  say("nodes of the graph", "%zu", nodes);
  must(cu().graph_instantiate(&exec, graph, 0), "cuGraphInstantiate");
  return exec;
}

// How allocations behave while another thread's stream is being captured.
void tell_allocations_in_captures(CUcontext context, CUstream stream) {
  for (const bool relaxed : {false, true}) {
    must(cu().capture_begin(stream, kCaptureGlobal), "cuStreamBeginCapture");
    void* memory = nullptr;
    const Attempt attempt(context, [&] {
      CUstreamCaptureMode mode = kCaptureRelaxed;
      if (relaxed) must(cu().capture_exchange_mode(&mode), "cuThreadExchangeStreamCaptureMode");
      return cu().host_alloc(&memory, 1 << 20, kHostAllocPortable);
    });
    attempt.ended(1000);
    say(relaxed ? "pinned memory in another's capture, relaxed"
                : "pinned memory in another's capture",
        "%s", attempt.result().c_str());
    CUgraph graph = nullptr;
    const CUresult ended = cu().capture_end(stream, &graph);
    say("that capture then", "%s", describe(ended).c_str());
    if (graph) cu().graph_destroy(graph);
  }
}

// How many of these streams run a kernel, a write or a copy while the others wait.
struct Others {
  std::vector<CUstream> streams;
  Words words{64};
  std::uint64_t value = 0;
  CUdeviceptr memory = 0;
};

enum class Work { write, kernel, copy };

std::size_t passing(Others& others, Work work, const Kernels& kernels) {
  ++others.value;
  for (std::size_t i = 0; i < others.streams.size(); ++i) {
    CUstream stream = others.streams[i];
    if (work == Work::kernel) {
      must(kernels.touch(stream, others.words.at(i), others.value), "a kernel");
      continue;
    }
    // Copies a whole line that is not otherwise used.
    if (work == Work::copy) {
      must(cu().memcpy_async(others.words.at(32), others.memory, 128, stream), "a copy");
    }
    must(cu().write_value64(stream, others.words.at(i), others.value, 0), "a write");
  }
  const auto count = [&] {
    std::size_t passed = 0;
    for (std::size_t i = 0; i < others.streams.size(); ++i) {
      passed += others.words[i] == others.value;
    }
    return passed;
  };
  wait_for([&] { return count() == others.streams.size(); }, over_stub() ? 1000 : 30);
  return count();
}

const char* name_of(Priority priority) {
  return priority == Priority::usual ? "usual" : priority == Priority::highest ? "highest" : "-1";
}

void tell_queues(Priority waiting_priority, Priority priority, const Kernels& kernels,
                 std::vector<CUstream>& waiting) {
  constexpr std::size_t most = 8;
  Others others;
  for (std::size_t i = 0; i < most; ++i) others.streams.push_back(new_stream(priority));
  must(cu().mem_alloc(&others.memory, 4096), "cuMemAlloc");
  const Words hold(1);
  std::uint64_t round = 0;
  for (const std::size_t number : {1U, 2U, 4U, 8U, 16U, 32U, 64U}) {
    while (waiting.size() < number) waiting.push_back(new_stream(waiting_priority));
    std::string text;
    bool stuck = false;
    for (const Work work : {Work::write, Work::kernel, Work::copy}) {
      ++round;
      stage(std::to_string(number) + " streams wait");
      for (std::size_t i = 0; i < number; ++i) {
        must(cu().wait_value64(waiting[i], hold.at(0), round, kWaitValueGeq), "a wait");
      }
      const std::size_t passed = passing(others, work, kernels);
      stuck |= passed < most;
      text += std::string(work == Work::write    ? "writes of "
                          : work == Work::kernel ? ", kernels of "
                                                 : ", copies of ") +
              std::to_string(passed);
      hold[0] = round;
      for (CUstream stream : others.streams) cu().stream_synchronize(stream);
      for (std::size_t i = 0; i < number; ++i) cu().stream_synchronize(waiting[i]);
    }
    const std::string name = std::to_string(number) + " " + name_of(waiting_priority) +
                             " streams wait; of 8 " + name_of(priority) + " ones pass";
    say(name.c_str(), "%s%s", text.c_str(), stuck ? " STUCK" : "");
    if (stuck) return;
  }
}

// Copies of one kind, each behind a wait on its own stream, and one of each kind on another stream.
struct Copies {
  static constexpr std::size_t bytes = 64 << 10;
  static constexpr std::size_t most = 16;
  enum Kind { to_device, from_device, on_device };
  static constexpr Kind kinds[] = {to_device, from_device, on_device};
  static constexpr const char* names[] = {"to the device", "from the device", "on the device"};
  Copies() {
    must(cu().mem_alloc(&device, 2 * bytes * (most + 1)), "cuMemAlloc");
    must(cu().host_alloc(&pinned, bytes * (most + 1), kHostAllocPortable), "cuMemHostAlloc");
    for (std::size_t i = 0; i < most; ++i) waiting.push_back(new_stream());
  }
  CUresult run(Kind kind, std::size_t place, CUstream stream) const {
    const CUdeviceptr here = device + 2 * place * bytes;
    auto* const host = static_cast<std::byte*>(pinned) + place * bytes;
    if (kind == to_device) return cu().memcpy_htod_async(here, host, bytes, stream);
    if (kind == from_device) return cu().memcpy_dtoh_async(host, here, bytes, stream);
    return cu().memcpy_dtod_async(here, here + bytes, bytes, stream);
  }
  CUdeviceptr device = 0;
  void* pinned = nullptr;
  std::vector<CUstream> waiting;
};

// Which of the three kinds of copies complete on `other` while `number` copies wait, as a mask.
unsigned passing_copies(const Copies& copies, Copies::Kind kind, std::size_t number,
                        CUstream other) {
  const Words words(2);
  stage(std::to_string(number) + " copies " + Copies::names[kind] + " wait");
  for (std::size_t i = 0; i < number; ++i) {
    must(cu().wait_value64(copies.waiting[i], words.at(0), 1, kWaitValueGeq), "a wait");
    must(copies.run(kind, i, copies.waiting[i]), "a copy");
  }
  unsigned passed = 0;
  for (const Copies::Kind one : Copies::kinds) {
    words[1] = 0;
    must(copies.run(one, Copies::most, other), "a copy");
    must(cu().write_value64(other, words.at(1), 1, 0), "a write");
    if (!wait_for([&] { return words[1] == 1; }, over_stub() ? 1000 : 30)) break;
    passed |= 1U << one;
  }
  words[0] = 1;
  must(cu().stream_synchronize(other), "cuStreamSynchronize");
  for (std::size_t i = 0; i < number; ++i) cu().stream_synchronize(copies.waiting[i]);
  return passed;
}

void tell_copies(const Copies& copies, Copies::Kind kind, Priority priority) {
  constexpr unsigned all = 7;
  const CUstream other = new_stream(priority);
  const std::string name = std::string("copies ") + Copies::names[kind] +
                           " behind waits; one on a " + name_of(priority) + " stream";
  for (const std::size_t number : {1U, 2U, 4U, 8U, 16U}) {
    const unsigned passed = passing_copies(copies, kind, number, other);
    if (passed == all) continue;
    const char* first = Copies::names[passed & 1U ? passed & 2U ? 2 : 1 : 0];
    return say(name.c_str(), "%s STUCK behind %zu", first, number);
  }
  say(name.c_str(), "passes 16");
}

}  // namespace

void probe_trips() {
  const Gpu gpu;
  const Kernels kernels;
  const CUstream stream = new_stream(Priority::highest);
  stage("waits and writes");
  tell_waits_and_writes(stream);
  stage("kernels behind waits");
  tell_kernels_behind_waits(stream, kernels);
  const Words writes(2);
  tell("write to host", from_call(writes, [&](std::uint64_t i) {
         return cu().write_value64(stream, writes.at(1), i, 0);
       }));
  const Words stores(2);
  tell("kernel's store to host",
       from_call(stores, [&](std::uint64_t i) { return kernels.touch(stream, stores.at(1), i); }));
  const Words tickets(3);
  tell("kernel and write to host", from_call(tickets, [&](std::uint64_t i) {
         const CUresult launched = kernels.touch(stream, tickets.at(2), i);
         return launched != kSuccess ? launched : cu().write_value64(stream, tickets.at(1), i, 0);
       }));
}

void probe_served() {
  const Gpu gpu;
  const Kernels kernels;
  const CUstream stream = new_stream();
  const Words words(2);
  stage("a kernel that takes steps from pinned memory");
  must(kernels.serve(stream, words.at(0), rounds()), "a kernel");
  tell("host, resident kernel, host", trips(words));
  must(cu().stream_synchronize(stream), "cuStreamSynchronize");
  std::vector<CUstream> streams;
  for (const std::size_t number : {2U, 4U, 8U, 16U}) {
    while (streams.size() < number) streams.push_back(new_stream());
    const Words steps(2 * number);
    for (std::size_t i = 0; i < number; ++i) {
      must(kernels.serve(streams[i], steps.at(2 * i), 2), "a kernel");
      steps[2 * i] = 1;
    }
    const auto answered = [&] {
      std::size_t found = 0;
      for (std::size_t i = 0; i < number; ++i) found += steps[2 * i + 1] >= 1;
      return found;
    };
    wait_for([&] { return answered() == number; }, over_stub() ? 1000 : 100);
    say("resident kernels at once", "%zu of %zu", answered(), number);
    for (std::size_t i = 0; i < number; ++i) steps[2 * i] = 2;
    for (std::size_t i = 0; i < number; ++i) cu().stream_synchronize(streams[i]);
  }
}

void probe_captured() {
  const Gpu gpu;
  const Kernels kernels;
  const CUstream stream = new_stream();
  const Words words(4);
  const CUgraphExec exec = capture_call(stream, words, kernels);
  stage("replays");
  const std::uint64_t replays = over_stub() ? 10 : 100;
  std::vector<double> us;
  for (std::uint64_t i = 1; i <= replays; ++i) {
    words[3] = 0;
    const std::uint64_t begin = now_ns();
    must(cu().graph_launch(exec, stream), "cuGraphLaunch");
    if (!wait_for([&] { return words[0] == 1; }, 1000)) give_up("a replay does not write start");
    words[0] = 0;
    if (i <= 3) sleep_ms(2);
    if (words[3] != 0) give_up("a replay does not wait");
    words[1] = 1;
    if (!wait_for([&] { return words[3] == 1; }, 1000)) give_up("a replay does not go on");
    if (words[1] != 0) give_up("a replay does not take its end flag back");
    us.push_back(1e-3 * static_cast<double>(now_ns() - begin));
  }
  say("replays that wrote, waited and went on", "all");
  tell("a replay", us);
  stage("allocations in captures");
  tell_allocations_in_captures(gpu.context, stream);
}

void probe_queues() {
  const Gpu gpu;
  const Kernels kernels;
  std::vector<CUstream> waiting;
  tell_queues(Priority::usual, Priority::usual, kernels, waiting);
  tell_queues(Priority::usual, Priority::highest, kernels, waiting);
}

void probe_priorities() {
  const Gpu gpu;
  const Kernels kernels;
  std::vector<CUstream> waiting;
  tell_queues(Priority::high, Priority::highest, kernels, waiting);
  tell_queues(Priority::high, Priority::usual, kernels, waiting);
}

void probe_copies() {
  const Gpu gpu;
  const Copies copies;
  for (const Priority priority : {Priority::highest, Priority::usual}) {
    for (const Copies::Kind kind : Copies::kinds) tell_copies(copies, kind, priority);
  }
}

}  // namespace pith::facts
