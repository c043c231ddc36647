// What a run may change of the simulated device: environment variables, read once. README.md says what each does.
#pragma once
#include <cstdint>

struct Fault {
  int64_t after = -1;  // before which NCCL operation of this rank it happens; -1: never
};

struct SlowLink {
  int first = -1, second = -1;  // ranks of the job
  int64_t bytes_per_s = 0;      // 0: no link is slow
};

enum class Connect { kInit, kFirst, kStream };

struct Switches {
  bool spins = true;                 // SIMULATED_SYNC=spin|block
  Connect connect = Connect::kInit;  // SIMULATED_CONNECT=init|first|stream
  bool passes_garbage = false;       // SIMULATED_MISMATCH=hang|garbage
  bool reports_death = false;        // SIMULATED_PEER_DEATH=hang|error
  bool traces = false;               // SIMULATED_TRACE=kernels
  int devices = 8;                   // SIMULATED_DEVICES=N
  Fault stops, lost, blocks;         // SIMULATED_STOPS=RANK:N, SIMULATED_LOST=RANK:N, SIMULATED_BLOCKS=RANK:N
  SlowLink slow;                     // SIMULATED_SLOW_LINK=RANK-RANK:BYTES_PER_S
  int rank = 0;                      // RANK, as launchers set it
};

const Switches& switches();
