#include "tools/demo/board.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace pith::demo {
namespace {

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

Board Board::create(int ranks, std::size_t parameters) {
  const int fd = memfd_create("pith-demo", MFD_CLOEXEC);
  if (fd < 0) fail("memfd_create for the ranks' results");
  return {fd, ranks, parameters};
}

Board Board::attach(int fd, int ranks, std::size_t parameters) { return {fd, ranks, parameters}; }

Board::Board(int fd, int ranks, std::size_t parameters)
    : fd_(fd), ranks_(static_cast<std::size_t>(ranks)), parameters_(parameters), memory_(nullptr) {
  if (ftruncate(fd_, static_cast<off_t>(bytes())) != 0) fail("sizing the ranks' results");
  memory_ = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (memory_ == MAP_FAILED) fail("mapping the ranks' results");
}

Board::~Board() {
  munmap(memory_, bytes());
  close(fd_);
}

std::size_t Board::bytes() const {
  return ranks_ * sizeof(RankReport) + (checkpoints.size() + 1) * parameters_ * sizeof(float);
}

std::span<RankReport> Board::reports() const { return {static_cast<RankReport*>(memory_), ranks_}; }

std::span<float> Board::snapshot(std::size_t checkpoint) const {
  void* const behind_reports = static_cast<RankReport*>(memory_) + ranks_;
  return {static_cast<float*>(behind_reports) + checkpoint * parameters_, parameters_};
}

}  // namespace pith::demo
