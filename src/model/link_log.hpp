// What rank 0 has learnt of the job's links, as a file that its next run may begin with.
//
// Used by the control thread, which waits for the disk, and at the communicator's end.
#pragma once

#include <cstdint>
#include <string>

#include "model/link_table.hpp"
#include "model/tuner.hpp"

namespace pith {

class LinkLog {
 public:
  // `table`: what is known so far, and whose links they are.
  LinkLog(std::string path, LinkTable table) : path_(std::move(path)), table_(std::move(table)) {}

  // Writes the file if half a minute has passed since the last time and what is known has changed.
  // `tuner` may be null: no call has been timed yet. Logs a warning, once, if the file cannot be
  // written.
  void look(const Tuner* tuner, std::uint64_t now_ns);
  // Writes it if anything was learnt, or where there is none, so that a run that is given it finds
  // one.
  void end(const Tuner* tuner);

 private:
  void learn(const Tuner* tuner);
  void write(const std::string& text);

  const std::string path_;
  LinkTable table_;
  std::uint64_t looked_ns_ = 0;
  std::string written_;
  bool has_learnt_ = false;
  bool failed_ = false;
};

}  // namespace pith
