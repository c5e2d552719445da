// netlab_rank RANK SIZE: a rank that does what it is told, one JSON line for each line it reads.
//
// Rank 0 begins with {"id": "..."}; the others read the id, as 256 hexadecimal digits, first. All
// answer {"ready": true} once they have joined, then obey
//
//   allreduce BYTES TIMES    broadcast BYTES TIMES    allgather BYTES TIMES     (BYTES: a rank's)
//   by_host BYTES TIMES      an allreduce by host that elects everything
//
// with {"seconds": [...], "correct": true, "code": 0, "error": ""}: the duration of each call after
// a barrier, and whether the data were right each time; and
//
//   shrink MEMBERS [EXCLUDED]    lists as 0,2: ranks of the job
//
// with the same: "correct" is whether the smaller communicator, in which all further calls are
// made, has these members. `failed` is answered with {"failed": [...]}, the ranks of the
// communicator that are dead. They leave at the end of their input.
#include <pith/pith.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

using Element = std::int32_t;
using Data = std::vector<Element>;
using Numbers = std::vector<int>;

void print(const nlohmann::json& line) { std::cout << line.dump() << std::endl; }

std::string to_hex(const pithUniqueId& id) {
  std::string text;
  for (const char byte : id.internal) {
    std::array<char, 3> digits;
    std::snprintf(digits.data(), digits.size(), "%02x", static_cast<unsigned char>(byte));
    text += digits.data();
  }
  return text;
}

pithUniqueId from_hex(const std::string& text) {
  pithUniqueId id{};
  for (std::size_t i = 0; i < sizeof id.internal && 2 * i + 1 < text.size(); ++i) {
    id.internal[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  }
  return id;
}

// "0,2"
Numbers read_numbers(const std::string& text) {
  Numbers numbers;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) numbers.push_back(std::stoi(part));
  return numbers;
}

// What rank r has at index i of call number `call`.
Element value(int rank, std::size_t i, std::size_t call) {
  return static_cast<Element>((i * 7 + call * 13) % 1009 + static_cast<std::size_t>(rank) * 2003);
}

Data values(int rank, std::size_t count, std::size_t call) {
  Data data(count);
  for (std::size_t i = 0; i < count; ++i) data[i] = value(rank, i, call);
  return data;
}

class Rank {
 public:
  Rank(int rank, int size) : rank_(rank), members_(static_cast<std::size_t>(size)) {
    std::iota(members_.begin(), members_.end(), 0);
  }
  ~Rank() {
    if (comm_) pithCommDestroy(comm_);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  bool join() {
    pithUniqueId id{};
    if (rank_ == 0) {
      const pithResult_t made = pithGetUniqueId(&id);
      if (made != pithSuccess) return report_failure(made);
      print({{"id", to_hex(id)}});
    } else {
      std::string text;
      std::getline(std::cin, text);
      id = from_hex(text);
    }
    const pithResult_t joined =
        pithCommInitRank(&comm_, static_cast<int>(members_.size()), id, rank_);
    if (joined != pithSuccess) return report_failure(joined);
    print({{"ready", true}});
    return true;
  }

  void obey(const std::string& line) {
    std::istringstream words(line);
    std::string collective;
    std::size_t bytes = 0;
    std::size_t times = 0;
    words >> collective;
    if (collective == "shrink") return shrink(words);
    if (collective == "failed") return print({{"failed", failed()}});
    words >> bytes >> times;
    nlohmann::json seconds = nlohmann::json::array();
    bool correct = true;
    pithResult_t result = pithSuccess;
    for (std::size_t call = 0; call < times && result == pithSuccess; ++call) {
      const std::size_t count = bytes / sizeof(Element);
      const Data send = values(rank_, count, call);
      const bool gathers = collective == "allgather";
      Data recv(gathers ? count * members_.size() : count);
      result = pithBarrier(comm_, nullptr);
      const auto start = std::chrono::steady_clock::now();
      if (result == pithSuccess) result = run(collective, send, recv);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      seconds.push_back(took.count());
      correct = correct && (result != pithSuccess || is_right(collective, recv, call));
    }
    answer(seconds, correct, result);
  }

 private:
  static void answer(const nlohmann::json& seconds, bool correct, pithResult_t result) {
    print({{"seconds", seconds},
           {"correct", correct},
           {"code", static_cast<int>(result)},
           {"error", result == pithSuccess ? "" : pithGetLastError(nullptr)}});
  }

  static bool report_failure(pithResult_t result) {
    print({{"code", static_cast<int>(result)}, {"error", pithGetLastError(nullptr)}});
    return false;
  }

  Numbers failed() const {
    Numbers ranks(members_.size());
    int count = static_cast<int>(ranks.size());
    if (pithCommGetFailed(comm_, ranks.data(), &count) != pithSuccess) count = 0;
    ranks.resize(static_cast<std::size_t>(count));
    return ranks;
  }

  void shrink(std::istringstream& words) {
    std::string members;
    std::string excluded;
    words >> members >> excluded;
    members_ = read_numbers(members);
    Numbers apart = read_numbers(excluded);
    pithComm_t smaller = nullptr;
    const auto start = std::chrono::steady_clock::now();
    pithResult_t result = pithCommShrink(comm_, apart.data(), static_cast<int>(apart.size()),
                                         &smaller, nullptr, PITH_SHRINK_DEFAULT);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    int size = -1;
    int rank = -1;
    if (result == pithSuccess) result = pithCommDestroy(std::exchange(comm_, smaller));
    if (result == pithSuccess) result = pithCommCount(comm_, &size);
    if (result == pithSuccess) result = pithCommUserRank(comm_, &rank);
    const auto place = static_cast<std::size_t>(rank);
    const bool correct = size == static_cast<int>(members_.size()) && place < members_.size() &&
                         members_[place] == rank_;
    answer({took.count()}, correct, result);
  }

  pithResult_t run(const std::string& collective, const Data& send, Data& recv) {
    const std::size_t count = send.size();
    if (collective == "allreduce") {
      return pithAllReduce(send.data(), recv.data(), count, pithInt32, pithSum, comm_, nullptr);
    }
    if (collective == "by_host") return run_by_host(send, recv);
    if (collective == "broadcast") {
      return pithBroadcast(send.data(), recv.data(), count, pithInt32, 0, comm_, nullptr);
    }
    if (collective == "allgather") {
      return pithAllGather(send.data(), recv.data(), count, pithInt32, comm_, nullptr);
    }
    return pithInvalidArgument;
  }

  // As float32, which holds these sums exactly.
  pithResult_t run_by_host(const Data& send, Data& recv) {
    constexpr const char* spec = "topk:density=1,hierarchy=host,bypass=never";
    pithCompressor_t compressor = nullptr;
    pithResult_t result = pithCompressorCreate(&compressor, spec);
    if (result != pithSuccess) return result;
    const std::vector<float> gradient(send.begin(), send.end());
    std::vector<float> sum(recv.size());
    result = pithAllReduceCompressed(gradient.data(), sum.data(), sum.size(), pithFloat32, pithSum,
                                     compressor, comm_, nullptr);
    pithCompressorStats_t stats{};
    stats.size = sizeof stats;
    if (result == pithSuccess) result = pithCompressorGetStats(compressor, &stats);
    if (result == pithSuccess && stats.bypassed != 0) result = pithInvalidUsage;
    pithCompressorDestroy(compressor);
    for (std::size_t i = 0; i < sum.size(); ++i) recv[i] = static_cast<Element>(sum[i]);
    return result;
  }

  bool is_right(const std::string& collective, const Data& recv, std::size_t call) const {
    Data expected;
    if (collective == "broadcast") {
      expected = values(members_.front(), recv.size(), call);
    } else if (collective == "allgather") {
      for (const int rank : members_) {
        const Data part = values(rank, recv.size() / members_.size(), call);
        expected.insert(expected.end(), part.begin(), part.end());
      }
    } else {
      expected.resize(recv.size());
      for (const int rank : members_) {
        const Data more = values(rank, recv.size(), call);
        for (std::size_t i = 0; i < more.size(); ++i) expected[i] += more[i];
      }
    }
    return recv == expected;
  }

  const int rank_;   // of the job
  Numbers members_;  // ranks of the job, by rank of the communicator
  pithComm_t comm_ = nullptr;
};

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) {
    std::fprintf(stderr, "usage: netlab_rank RANK SIZE\n");
    return 2;
  }
  Rank rank(std::atoi(arguments[1]), std::atoi(arguments[2]));
  if (!rank.join()) return 1;
  for (std::string line; std::getline(std::cin, line);) rank.obey(line);
  return 0;
}
