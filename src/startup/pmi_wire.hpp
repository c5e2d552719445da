// PMI-1 as MPICH's mpirun (Hydra) speaks it: lines of text over an inherited descriptor, one answer
// to each question.
#pragma once

#include <string>
#include <string_view>

#include "core/error.hpp"

namespace pith {

class PmiWire {
 public:
  // Sends "init", and the destructor "finalize": Hydra takes a process that ends without it for a
  // failure of the job. The descriptor stays open.
  static Expected<PmiWire> open(int fd, std::uint64_t deadline_ns);
  PmiWire() = default;
  PmiWire(PmiWire&& other) noexcept;
  PmiWire& operator=(PmiWire&& other) noexcept;
  ~PmiWire();

  // Access the job's key-value space; keys and values may hold no spaces or newlines.
  Error put(std::string_view key, std::string_view value, std::uint64_t deadline_ns);
  Expected<std::string> get(std::string_view key, std::uint64_t deadline_ns);
  // Waits for all processes of the job. Values put before it are visible to all after it.
  Error barrier(std::uint64_t deadline_ns);

 private:
  // Returns the answer's line, which must begin with "cmd=<answer>".
  Expected<std::string> ask(const std::string& question, std::string_view answer,
                            std::uint64_t deadline_ns);
  Error broken(std::string_view what);

  int fd_ = -1;  // -1: closed, or an exchange has failed
  std::string space_;
};

// The value of `key` in a line of "key=value" pairs; empty: not there.
std::string pmi_field(std::string_view line, std::string_view key);

}  // namespace pith
