# SPDX-License-Identifier: Apache-2.0
"""A 5G core to test against: AMF and SMF above pycrate's codecs, and what generates messages for the agent's."""
