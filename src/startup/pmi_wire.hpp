// PMI-1 as MPICH's mpirun (Hydra) speaks it: lines of text over a descriptor that each process
// inherits, one answer to each question.
#pragma once

#include <string>
#include <string_view>

#include "core/error.hpp"

namespace pith {

class PmiWire {
 public:
  // Introduces this process, and says goodbye at the end: Hydra takes a process that was introduced
  // and ends without that for a failure of the job. The descriptor stays the launcher's.
  static Expected<PmiWire> open(int fd, std::uint64_t deadline_ns);
  PmiWire() = default;
  PmiWire(PmiWire&& other) noexcept;
  PmiWire& operator=(PmiWire&& other) noexcept;
  ~PmiWire();

  // Of the job's space; neither may hold spaces or newlines.
  Error put(std::string_view key, std::string_view value, std::uint64_t deadline_ns);
  Expected<std::string> get(std::string_view key, std::uint64_t deadline_ns);
  // Waits for all processes of the job: what was put before it is there for all after it.
  Error barrier(std::uint64_t deadline_ns);

 private:
  // The answer's line, which must begin with "cmd=<answer>".
  Expected<std::string> ask(const std::string& question, std::string_view answer,
                            std::uint64_t deadline_ns);
  Error broken(std::string_view what);

  int fd_ = -1;  // -1: closed, or the two sides are out of step
  std::string space_;
};

// The value of "key=value" in a line of such pairs. Empty: not there.
std::string pmi_field(std::string_view line, std::string_view key);

}  // namespace pith
