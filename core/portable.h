#pragma once

// HD marks a function compiled for both the host and the device.
#if defined(__CUDACC__)
#define HD __host__ __device__
#else
#define HD
#endif
