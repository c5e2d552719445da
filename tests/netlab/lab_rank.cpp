// netlab_rank RANK SIZE: a rank that does what it is told, one JSON line for each line it reads.
//
// Rank 0 begins with {"id": "..."}; the others read the id, as 256 hexadecimal digits, first. All
// answer {"ready": true} once they have joined, then obey
//
//   allreduce BYTES TIMES    broadcast BYTES TIMES    allgather BYTES TIMES     (BYTES: a rank's)
//   by_host BYTES TIMES      an allreduce by host that elects everything
//
// with {"seconds": [...], "correct": true, "code": 0, "error": ""}: the duration of each call after
// a barrier, and whether the data were right each time. They leave at the end of their input.
#include <pith/pith.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace {

using Element = std::int32_t;
using Data = std::vector<Element>;

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
  Rank(int rank, int size) : rank_(rank), size_(size) {}
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
    const pithResult_t joined = pithCommInitRank(&comm_, size_, id, rank_);
    if (joined != pithSuccess) return report_failure(joined);
    print({{"ready", true}});
    return true;
  }

  void obey(const std::string& line) {
    std::istringstream words(line);
    std::string collective;
    std::size_t bytes = 0;
    std::size_t times = 0;
    words >> collective >> bytes >> times;
    nlohmann::json seconds = nlohmann::json::array();
    bool correct = true;
    pithResult_t result = pithSuccess;
    for (std::size_t call = 0; call < times && result == pithSuccess; ++call) {
      const std::size_t count = bytes / sizeof(Element);
      const Data send = values(rank_, count, call);
      const bool gathers = collective == "allgather";
      Data recv(gathers ? count * static_cast<std::size_t>(size_) : count);
      result = pithBarrier(comm_, nullptr);
      const auto start = std::chrono::steady_clock::now();
      if (result == pithSuccess) result = run(collective, send, recv);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      seconds.push_back(took.count());
      correct = correct && (result != pithSuccess || is_right(collective, recv, call));
    }
    print({{"seconds", seconds},
           {"correct", correct},
           {"code", static_cast<int>(result)},
           {"error", result == pithSuccess ? "" : pithGetLastError(nullptr)}});
  }

 private:
  static bool report_failure(pithResult_t result) {
    print({{"code", static_cast<int>(result)}, {"error", pithGetLastError(nullptr)}});
    return false;
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
      expected = values(0, recv.size(), call);
    } else if (collective == "allgather") {
      const std::size_t each = recv.size() / static_cast<std::size_t>(size_);
      for (int rank = 0; rank < size_; ++rank) {
        const Data part = values(rank, each, call);
        expected.insert(expected.end(), part.begin(), part.end());
      }
    } else {
      expected = values(0, recv.size(), call);
      for (int rank = 1; rank < size_; ++rank) {
        const Data more = values(rank, recv.size(), call);
        for (std::size_t i = 0; i < more.size(); ++i) expected[i] += more[i];
      }
    }
    return recv == expected;
  }

  int rank_;
  int size_;
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
