"""Storms: clients that send while every process is killed and stopped, and what must have been counted afterwards."""
