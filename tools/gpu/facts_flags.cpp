// How streams and host hand words to each other: latencies, capture, and how many streams may wait
// before others stand still.
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

// Host writes word 0, somebody answers in word 1: what a round takes.
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

// From a call to the word that it makes the device write.
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

// What the library does when a stream of another thread is being captured.
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

// How many of these streams run a kernel, or a write or copy, while the others wait.
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
    // The copy brings a whole line that nobody looks at.
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

void tell_queues(Priority priority, const Kernels& kernels, std::vector<CUstream>& waiting) {
  constexpr std::size_t most = 8;
  Others others;
  for (std::size_t i = 0; i < most; ++i) others.streams.push_back(new_stream(priority));
  must(cu().mem_alloc(&others.memory, 4096), "cuMemAlloc");
  const Words hold(1);
  std::uint64_t round = 0;
  for (const std::size_t number : {1, 2, 4, 8, 16, 32, 64}) {
    while (waiting.size() < number) waiting.push_back(new_stream());
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
    const std::string name = std::to_string(number) + " usual streams wait; of 8 " +
                             (priority == Priority::usual ? "usual" : "highest") + " ones pass";
    say(name.c_str(), "%s%s", text.c_str(), stuck ? " STUCK" : "");
    if (stuck) return;
  }
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
  for (const std::size_t number : {2, 4, 8, 16}) {
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
  tell_queues(Priority::usual, kernels, waiting);
  tell_queues(Priority::highest, kernels, waiting);
}

}  // namespace pith::facts
