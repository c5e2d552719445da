#include "tools/demo/session.hpp"

#include <algorithm>

namespace pith::demo {

SharedFloats::SharedFloats(std::size_t count) : count_(count) {
  check(pithMemAlloc(&data_, count * sizeof(float)), "pithMemAlloc");
}

class Session::Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds) {}
  ~Stopwatch() { seconds_ += std::chrono::duration<double>(Clock::now() - start_).count(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  double& seconds_;
  Clock::time_point start_ = Clock::now();
};

Session::Session(const pithUniqueId& id, int ranks, int rank) : ranks_(ranks), rank_(rank) {
  check(pithCommInitRank(&comm_, ranks, id, rank), "pithCommInitRank");
}

Session::~Session() { pithCommAbort(comm_); }

void Session::count(std::size_t bytes) {
  bytes_ += bytes;
  ++collectives_;
}

void Session::broadcast(std::span<float> values) {
  const Stopwatch stopwatch(seconds_);
  check(pithBroadcast(values.data(), values.data(), values.size(), pithFloat32, 0, comm_, nullptr),
        "pithBroadcast", comm_);
  count(rank_ == 0 ? values.size_bytes() : 0);
}

void Session::start_average(std::span<float> bucket) {
  const Stopwatch stopwatch(seconds_);
  pithRequest_t request = nullptr;
  check(pithGroupStart(), "pithGroupStart");
  const pithResult_t queued = pithAllReduce(bucket.data(), bucket.data(), bucket.size(),
                                            pithFloat32, pithAvg, comm_, nullptr);
  const pithResult_t started = pithGroupEndAsync(&request);
  check(queued, "pithAllReduce", comm_);
  check(started, "pithGroupEndAsync", comm_);
  in_flight_.push_back(request);
  count(bucket.size_bytes());
}

void Session::finish_averages() {
  const Stopwatch stopwatch(seconds_);
  pithResult_t first_failure = pithSuccess;
  for (const pithRequest_t request : in_flight_) {
    const pithResult_t result = pithWait(request);
    if (first_failure == pithSuccess) first_failure = result;
  }
  in_flight_.clear();
  check(first_failure, "pithWait", comm_);
}

void Session::sum(std::span<double> values) {
  const Stopwatch stopwatch(seconds_);
  check(pithAllReduce(values.data(), values.data(), values.size(), pithFloat64, pithSum, comm_,
                      nullptr),
        "pithAllReduce", comm_);
  count(values.size_bytes());
}

bool Session::same_everywhere(std::uint64_t value) {
  const Stopwatch stopwatch(seconds_);
  std::vector<std::uint64_t> values(static_cast<std::size_t>(ranks_));
  check(pithAllGather(&value, values.data(), 1, pithUint64, comm_, nullptr), "pithAllGather",
        comm_);
  count(sizeof(value));
  return std::all_of(values.begin(), values.end(),
                     [value](std::uint64_t other) { return other == value; });
}

void Session::close() {
  const pithComm_t comm = comm_;
  comm_ = nullptr;
  check(pithCommDestroy(comm), "pithCommDestroy");
}

}  // namespace pith::demo
