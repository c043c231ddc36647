#include "segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "../switches.h"

namespace {

// State and start time of a process (proc(5), fields 3 and 22); 0 where it is gone or a zombie.
uint64_t start_time_of(int pid) {
  char path[64], text[1024];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  if (length <= 0) return 0;
  text[length] = 0;
  char* at = strrchr(text, ')');
  if (!at || at[2] == 'Z' || at[2] == 'X') return 0;
  at += 2;
  for (int field = 3; field < 22 && at; field++) at = strchr(at + 1, ' ');
  return at ? strtoull(at, nullptr, 10) : 0;
}

void* map_of(int pid, int descriptor, size_t bytes) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, descriptor);
  int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return nullptr;
  void* page = MAP_FAILED;
  // Every member gives it the same size.
  if (ftruncate(file, static_cast<off_t>(bytes)) == 0) page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return page == MAP_FAILED ? nullptr : page;
}

}  // namespace

int make_segment() { return memfd_create("simulated-communicator", MFD_CLOEXEC); }

Segment* open_segment(int pid, int descriptor, int size) {
  size_t count = static_cast<size_t>(size);
  void* page = map_of(pid, descriptor, count * sizeof(Member) + count * count * sizeof(Channel));
  if (!page) return nullptr;
  auto members = static_cast<Member*>(page);
  return new Segment{size, members, reinterpret_cast<Channel*>(members + size), new Bell* [count] {}};
}

void announce(Segment* segment, int rank) {
  Member& self = segment->members[rank];
  self.pid = getpid();
  self.world_rank = switches().rank;
  self.start_time = start_time_of(self.pid);
  simulated_bell(&self.bell_descriptor);
  self.here = 1;
  ring_all(segment);
}

bool all_here(Segment* segment) {
  for (int rank = 0; rank < segment->size; rank++)
    if (!segment->members[rank].here) return false;
  return true;
}

void ring_all(Segment* segment) {
  for (int rank = 0; rank < segment->size; rank++) {
    Member& member = segment->members[rank];
    if (!member.here) continue;
    Bell*& bell = segment->bells[rank];
    if (!bell) bell = static_cast<Bell*>(map_of(member.pid, member.bell_descriptor, sizeof(Bell)));
    if (bell) ring(bell);
  }
}

bool is_alive(const Member& member) { return !member.here || start_time_of(member.pid) == member.start_time; }

bool read_from(const Member& member, const void* from, void* to, size_t bytes) {
  auto into = static_cast<char*>(to);
  auto begin = static_cast<char*>(const_cast<void*>(from));
  while (bytes) {
    iovec local{into, bytes}, remote{begin, bytes};
    ssize_t length = process_vm_readv(member.pid, &local, 1, &remote, 1, 0);
    if (length <= 0) return false;
    into += length;
    begin += length;
    bytes -= static_cast<size_t>(length);
  }
  return true;
}
